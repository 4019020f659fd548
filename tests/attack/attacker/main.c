#include "attack.h"

#include <stdarg.h>

static const struct { const char *name; technique *run; } techniques[] = {
    {"abi", abi}, {"descriptors", descriptors}, {"devices", devices}, {"hostfiles", hostfiles}, {"ipc", ipc},
    {"kernel", kernel}, {"limits", limits}, {"messages", messages}, {"mounts", mounts}, {"names", names}, {"namespaces", namespaces}, {"network", network}, {"overlay", overlay},
    {"privilege", privilege}, {"proc", proc}, {"processes", processes}, {"protected", protected_dir},
    {"readonly", readonly}, {"sockets", sockets}, {"terminal", terminal}, {"unixpath", unixpath},
    {"worker", worker},
};

static void say(const char *verdict, const char *attempt, const char *format, va_list args)
{
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    printf("%s %s: %s\n", verdict, attempt, text);
    fflush(stdout);
}

void escaped(const char *attempt, const char *format, ...)
{
    va_list a;
    va_start(a, format);
    say("ESCAPED", attempt, format, a);
    va_end(a);
}

void held(const char *attempt, const char *format, ...)
{
    va_list a;
    va_start(a, format);
    say("HELD", attempt, format, a);
    va_end(a);
}

void absent(const char *attempt, const char *format, ...)
{
    va_list a;
    va_start(a, format);
    say("ABSENT", attempt, format, a);
    va_end(a);
}

bool report(const char *attempt, long result)
{
    if (result >= 0)
        escaped(attempt, "it returned %ld", result);
    else
        held(attempt, "%s", strerror(errno));
    return result >= 0;
}

void reached(const char *attempt, long result)
{
    if (result < 0 && (errno == EPERM || errno == EACCES || errno == ENOSYS))
        held(attempt, "%s", strerror(errno));
    else
        escaped(attempt, "the kernel looked at the arguments: %s", result < 0 ? strerror(errno) : "and took them");
}

void reads(const char *attempt, const char *path)
{
    char some[64]; /* a few files of /proc want whole words */
    int f = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (f < 0) {
        held(attempt, "open %s: %s", path, strerror(errno));
        return;
    }
    ssize_t n = read(f, some, sizeof some);
    if (n > 0)
        escaped(attempt, "read %s", path);
    else
        held(attempt, "read %s: %s", path, n < 0 ? strerror(errno) : "it is empty");
    close(f);
}

void writes(const char *attempt, const char *path)
{
    int f = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    report(attempt, f);
    if (f >= 0)
        close(f);
}

bool put(const char *path, const char *text)
{
    int f = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    if (f < 0)
        return false;
    bool whole = write(f, text, strlen(text)) == (ssize_t)strlen(text);
    close(f);
    return whole;
}

const char *join(const char *dir, const char *name)
{
    static char buffers[4][8192];
    static unsigned next;
    char *b = buffers[next++ % 4];
    snprintf(b, sizeof buffers[0], "%s/%s", dir, name);
    return b;
}

_Noreturn void usage(const char *what)
{
    fprintf(stderr, "attacker: usage: %s\n", what);
    exit(2);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof techniques / sizeof *techniques; i++)
        if (strcmp(argv[1], techniques[i].name) == 0) {
            techniques[i].run(argv + 2, argc - 2);
            printf("DONE\n");
            return 0;
        }
    usage("attacker TECHNIQUE ARGS...");
}
