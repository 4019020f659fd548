/* What /proc and /sys show or take of the whole machine (L7, L17a). */
#include "attack.h"

#include <sys/stat.h>

static void lists(const char *attempt, const char *path)
{
    struct stat st;
    report(attempt, stat(path, &st));
}

/* args: a process of the host to be looked at through /proc */
void proc(char **args, int count)
{
    if (count != 1)
        usage("proc PID");
    static const char *const written[] = {
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
        "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ip_unprivileged_port_start",
        "/proc/sys/fs/binfmt_misc", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/sys/kernel/ns_last_pid",
        "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/fs/cgroup/release_agent",
    };
    for (unsigned i = 0; i < sizeof written / sizeof *written; i++) {
        struct stat st;
        char name[128];
        snprintf(name, sizeof name, "write %s", written[i]);
        if (stat(written[i], &st) < 0)
            absent(name, "%s", strerror(errno));
        else if (S_ISDIR(st.st_mode))
            report(name, access(written[i], W_OK));
        else
            writes(name, written[i]);
    }
    static const char *const read_[] = {"/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/timer_list",
                                        "/proc/config.gz", "/proc/slabinfo", "/proc/kpagecount"};
    for (unsigned i = 0; i < sizeof read_ / sizeof *read_; i++) {
        char name[128];
        snprintf(name, sizeof name, "read %s", read_[i]);
        struct stat st;
        if (stat(read_[i], &st) < 0)
            absent(name, "%s", strerror(errno));
        else
            reads(name, read_[i]);
    }
    lists("/sys/class", "/sys/class");
    lists("/sys/fs/cgroup", "/sys/fs/cgroup");
    lists("/sys/kernel/debug", "/sys/kernel/debug");
    /* Magic links lead to objects, past every mount. */
    static const char *const links[] = {"root", "cwd", "exe", "ns/net", "fd/0"};
    for (unsigned i = 0; i < sizeof links / sizeof *links; i++) {
        char name[128], path[128];
        snprintf(name, sizeof name, "follow /proc/PID/%s", links[i]);
        snprintf(path, sizeof path, "/proc/%s/%s", args[0], links[i]);
        int f = open(path, O_PATH | O_CLOEXEC);
        report(name, f);
        if (f >= 0)
            close(f);
    }
}
