/* Back into another namespace, or out into one with powers of its own (L7, L11). */
#include "attack.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>

static const struct { const char *name; unsigned long flag; } kinds[] = {
    {"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS}, {"net", CLONE_NEWNET}, {"pid", CLONE_NEWPID},
    {"ipc", CLONE_NEWIPC}, {"uts", CLONE_NEWUTS}, {"cgroup", CLONE_NEWCGROUP}, {"time", 0x80},
};

/* in_child runs a call in a child of its own, so that what succeeds changes nothing here; the child's status is errno. */
#define in_child(attempt, call)                                             \
    do {                                                                    \
        fflush(stdout);                                                     \
        pid_t child = fork();                                               \
        int status = 0;                                                     \
        if (child == 0)                                                     \
            _exit((call) < 0 ? (errno ? errno : 1) : 0);                    \
        waitpid(child, &status, 0);                                         \
        errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;            \
        report(attempt, errno ? -1 : 0);                                    \
    } while (0)

static long clone_with(unsigned long flags)
{
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid((pid_t)pid, NULL, 0);
    return pid;
}

static long clone3_with(unsigned long flags)
{
    struct clone_args a = {.flags = flags, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &a, sizeof a);
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid((pid_t)pid, NULL, 0);
    return pid;
}

static long enter(const char *of, const char *kind)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/%s", of, kind);
    int f = open(path, O_RDONLY | O_CLOEXEC);
    return f < 0 ? f : setns(f, 0);
}

void namespaces(char **args, int count)
{
    if (count != 1)
        usage("namespaces PID");
    char name[64];
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        unsigned long f = kinds[i].flag;
        snprintf(name, sizeof name, "unshare %s", kinds[i].name);
        in_child(name, unshare((int)f));
        if (f == 0x80) /* the bit of the time namespace is part of clone's exit signal */
            continue;
        snprintf(name, sizeof name, "clone %s", kinds[i].name);
        in_child(name, clone_with(f));
        /* The bits above 32 are ignored by the kernel, so a filter must not be misled by them. */
        snprintf(name, sizeof name, "clone %s with high bits", kinds[i].name);
        in_child(name, clone_with(f | 1UL << 40));
        snprintf(name, sizeof name, "clone3 %s", kinds[i].name);
        in_child(name, clone3_with(f));
    }
    /* One's own namespaces can be entered by whoever is privileged in them; the user namespace by nobody. */
    static const char *const own[] = {"mnt", "net", "ipc", "uts", "cgroup"};
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++) {
        snprintf(name, sizeof name, "setns %s", own[i]);
        in_child(name, enter("self", own[i]));
        snprintf(name, sizeof name, "setns %s of another process", own[i]);
        in_child(name, enter(args[0], own[i]));
    }
}
