/* What a careless parent leaves behind: open descriptors, variables, arguments, auxiliary values (L16, L18b). */
#include "attack.h"

#include <dirent.h>
#include <sys/ioctl.h>

extern char **environ;

/* args: a variable that must not be there, words that must not be in any argument that /proc shows */
void descriptors(char **args, int count)
{
    if (count != 2)
        usage("descriptors VARIABLE WORD");
    char found[512] = "";
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        int fd = atoi(e->d_name);
        if (e->d_name[0] == '.' || fd <= 2 || fd == dirfd(d))
            continue;
        size_t n = strlen(found);
        snprintf(found + n, sizeof found - n, " %d", fd);
    }
    if (d)
        closedir(d);
    if (found[0])
        escaped("open descriptors", "inherited%s", found);
    else
        held("open descriptors", "none above 2");

    /* /proc may be absent or lie: ask the descriptors themselves. */
    int inherited = 0;
    for (int fd = 3; fd < 4096; fd++)
        inherited += fcntl(fd, F_GETFD) >= 0;
    if (inherited > 0)
        escaped("descriptors by number", "%d of them", inherited);
    else
        held("descriptors by number", "none from 3 to 4095");

    /* A regular file as standard input could be reopened for writing, read elsewhere, or truncated. */
    struct stat st;
    bool file = false;
    for (int fd = 0; fd <= 2; fd++)
        file = file || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode));
    if (file)
        escaped("a file as standard input or output", "it can be reopened");
    else
        held("a file as standard input or output", "pipes or a terminal");

    if (getenv(args[0]))
        escaped("the environment", "%s is %s", args[0], getenv(args[0]));
    else
        held("the environment", "no %s", args[0]);

    bool told = false;
    d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], text[4096] = "";
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || atoi(e->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
        int f = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = f < 0 ? 0 : read(f, text, sizeof text - 1);
        for (ssize_t i = 0; i < n; i++)
            if (!text[i])
                text[i] = ' ';
        told = told || strstr(text, args[1]);
        if (f >= 0)
            close(f);
    }
    if (d)
        closedir(d);
    if (told)
        escaped("others' arguments", "%s is in one of them", args[1]);
    else
        held("others' arguments", "none says %s", args[1]);
}
