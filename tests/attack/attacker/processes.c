/* Processes outside: signals, tracing, their memory, their descriptors, whatever /proc says of them (L7, L16). */
#include "attack.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

static const char *of(const char *pid, const char *file)
{
    static char path[128];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, file);
    return path;
}

/* memory works on anybody's process: the victim outside, PID 1 inside. */
static void memory(const char *pid, pid_t number, unsigned long address)
{
    char byte;
    long r = ptrace(PTRACE_SEIZE, number, 0, 0);
    if (report("ptrace", r))
        ptrace(PTRACE_DETACH, number, 0, 0);
    struct iovec here = {&byte, 1}, there = {(void *)address, 1};
    report("process_vm_readv", process_vm_readv(number, &here, 1, &there, 1, 0));
    int m = open(of(pid, "mem"), O_RDWR | O_CLOEXEC);
    report("/proc/PID/mem", m);
    reads("/proc/PID/environ", of(pid, "environ"));
    reads("/proc/PID/auxv", of(pid, "auxv"));
    char link[256];
    report("/proc/PID/cwd", readlink(of(pid, "cwd"), link, sizeof link));
    report("/proc/PID/fd/1", readlink(of(pid, "fd/1"), link, sizeof link));
    int p = (int)syscall(SYS_pidfd_open, number, 0);
    report("pidfd_getfd", p < 0 ? p : syscall(SYS_pidfd_getfd, p, 1, 0));
}

/* args: the victim's pid, an address that is mapped in it; "pid1" instead of a pid is the init of the cell */
void processes(char **args, int count)
{
    if (count != 2)
        usage("processes PID|pid1 ADDRESS");
    unsigned long address = strtoul(args[1], NULL, 0);
    if (strcmp(args[0], "pid1") == 0) {
        memory("1", 1, address);
        return;
    }
    pid_t victim = (pid_t)atoi(args[0]);
    memory(args[0], victim, address);
    report("kill", kill(victim, SIGCONT));
    report("tgkill", syscall(SYS_tgkill, victim, victim, SIGCONT));
    siginfo_t info = {.si_signo = SIGCONT, .si_code = SI_QUEUE};
    report("rt_sigqueueinfo", syscall(SYS_rt_sigqueueinfo, victim, SIGCONT, &info));
    report("pidfd_open", syscall(SYS_pidfd_open, victim, 0));
    report("setpriority", syscall(SYS_setpriority, 0, victim, 19));
    reads("/proc/PID/cmdline", of(args[0], "cmdline"));
}
