/* Programs that give their caller more than the caller has: setuid, setgid, file capabilities (L7, L11). */
#include "attack.h"

#include <linux/capability.h>
#include <sys/prctl.h>

static void runs(const char *attempt, const char *program)
{
    char text[64] = "";
    int out[2];
    if (pipe(out) < 0)
        usage("privilege: a pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], 1);
        execl(program, program, "privilege", "who", NULL);
        dprintf(1, "exec: %s", strerror(errno));
        _exit(1);
    }
    close(out[1]);
    (void)!read(out[0], text, sizeof text - 1);
    close(out[0]);
    waitpid(child, NULL, 0);
    if (strncmp(text, "more", 4) == 0)
        escaped(attempt, "it has %s", text);
    else
        held(attempt, "%s", text);
}

static bool capable(unsigned long long *caps)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    if (syscall(SYS_capget, &head, data) < 0)
        return false;
    *caps = (unsigned long long)data[1].permitted << 32 | data[0].permitted;
    return true;
}

/* args: who; or NAME=PROGRAM of this same program with more power in its file */
void privilege(char **args, int count)
{
    unsigned long long caps = 0;
    capable(&caps);
    if (count == 1 && strcmp(args[0], "who") == 0) {
        bool more = geteuid() != getuid() || getegid() != getgid() || caps != 0;
        printf("%s: uid %u, effective %u, group %u, effective %u, capabilities %llx\n", more ? "more" : "no more", getuid(),
               geteuid(), getgid(), getegid(), caps);
        fflush(stdout);
        exit(0);
    }
    for (int i = 0; i < count; i++) {
        char *program = strchr(args[i], '=');
        if (!program)
            usage("privilege who|NAME=PROGRAM...");
        *program++ = 0;
        runs(args[i], program);
    }
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        held("no_new_privs", "it is set");
    else
        escaped("no_new_privs", "it is not set");
    int left = 0;
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
        left += prctl(PR_CAPBSET_READ, cap);
    if (left > 0)
        escaped("the bounding set", "%d capabilities can still be gained", left);
    else
        held("the bounding set", "it is empty");
}
