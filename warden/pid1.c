/*
 * pid1.c: PID 1 of a cell, and the agent's last steps before its exec.
 *
 *   warden                       PID 1                                  agent
 *     | clone(NEWPID)              |
 *     | network                    | root, /dev, /proc                    (mounts_begin)
 *     | waits for its request      | waits for its request (L22)
 *     | the box's sockets          | grants, pivot_root                   (mounts_complete)
 *     | serves the box's gate      | its cgroups: one thread that moves itself needs no grace period of the kernel's
 *     |                            | cgroup namespace, NPROC limit
 *     |                            | inner user namespace, no capability, no_new_privs
 *     |                            | Landlock, then seccomp: mounts and rules need calls that the filter refuses
 *     | --- GO, by the box (B163)> |
 *     | <-- BUILT + listener ----- |
 *     |                            | vfork ---------------------------> session, terminal, exec
 *     | <-------- EXECUTED ------- |
 *     | <-------- EXITED --------- |
 */
#include "warden.h"

#include <linux/landlock.h>
#include <sys/resource.h>
#include <termios.h>

#include "tables.h"

static char *argv_of[MAX_ARGS + 1], *envp_of[MAX_ARGS + 1];
static volatile int exec_error;
static volatile sig_atomic_t agent;

static void note(struct cell *c, uint32_t kind, int32_t a, const char *text, const int *fds, unsigned nfds)
{
    struct note n = {.kind = kind, .a = a};
    snprintf(n.text, sizeof n.text, "%s", text);
    if (!send_fds(c->sync[1], &n, sizeof n, fds, nfds))
        _exit(125);
}

/* inner_namespace makes the user namespace of the agent: one id, and no capability even there. A process in it can
 * gain none in the outer one, which owns the mounts and the network (L7). */
static void inner_namespace(const struct cell *c)
{
    must(unshare(CLONE_NEWUSER), "make the inner user namespace", "");
    must(prctl(PR_SET_DUMPABLE, 1), "open /proc/self to its owner", "");
    must(write_maps("/proc/self", &c->req, c->req.uid_in, c->req.gid_in), "map the ids of", "the inner user namespace");
    must(prctl(PR_SET_DUMPABLE, 0), "close /proc/self", "");
}

static void drop_capabilities(void)
{
    int cap = 0;
    while (prctl(PR_CAPBSET_DROP, cap) == 0)
        cap++;
    if (prctl(PR_CAPBSET_READ, cap) >= 0) /* it failed at one that the kernel has */
        fail("empty the bounding set", "");
    must(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "clear the ambient set", "");
    hold(0);
}

/* Rights and scopes of linux/landlock.h that this build's headers may not name yet. */
enum {
    FS_TO_ABI1 = (1 << 13) - 1, FS_REFER = 1 << 13, FS_TRUNCATE = 1 << 14, FS_IOCTL_DEV = 1 << 15, FS_UNIX = 1 << 16,
    FS_READ = 1 << 0 | 1 << 2 | 1 << 3, /* execute, read file, read directory */
    SCOPES = 1 << 0 | 1 << 1, /* abstract sockets, signals */
};
struct ruleset_attr { uint64_t fs, net, scoped; };

static void landlock_path(int ruleset, const char *path, uint64_t rights, bool optional)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = rights};
    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0 && optional)
        return;
    must(rule.parent_fd, "open for Landlock", path);
    must(syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0), "add a Landlock rule for", path);
    close(rule.parent_fd);
}

/* landlock is the second wall (L10): what is visible can be read; what is granted for writing can be written;
 * abstract sockets and signals stay within the cell where the kernel can scope them, and sockets by path. */
static void landlock(const struct cell *c)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 2)
        fail_as(EOPNOTSUPP, "Landlock ABI 2 (Linux 6.1) is needed", "");
    uint64_t all = FS_TO_ABI1 | FS_REFER | (abi >= 3 ? FS_TRUNCATE : 0) | (abi >= 5 ? FS_IOCTL_DEV : 0);
    struct ruleset_attr attr = {.fs = all | (abi >= 9 ? FS_UNIX : 0), .scoped = abi >= 6 ? SCOPES : 0};
    size_t size = abi >= 6 ? sizeof attr : abi >= 4 ? 16 : 8;
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    must(ruleset, "make a Landlock ruleset", "");
    uint64_t write = all & ~(uint64_t)FS_IOCTL_DEV;
    landlock_path(ruleset, "/", FS_READ, false);
    landlock_path(ruleset, "/proc", FS_READ | (1 << 1) | (all & FS_TRUNCATE), false);
    landlock_path(ruleset, "/dev", FS_READ | (1 << 1) | (all & (FS_TRUNCATE | FS_IOCTL_DEV)), false);
    landlock_path(ruleset, "/dev/shm", write, true);
    for (uint32_t i = 0; i < c->spec->nrecords; i++) {
        const struct record *r = spec_record(c, i);
        if (!(r->flags & REC_WRITABLE))
            continue;
        uint64_t rights = r->flags & REC_FILE ? (1 << 0 | 1 << 1 | 1 << 2 | (all & FS_TRUNCATE)) : write;
        landlock_path(ruleset, spec_string(c, r->path), rights, false);
    }
    must(syscall(SYS_landlock_restrict_self, ruleset, 0), "enforce Landlock", "");
    close(ruleset);
}

static int seccomp(const struct cell *c)
{
    bool sized = c->spec->cpus > 0 || c->spec->memory > 0;
    struct sock_fprog plain = {sizeof filter_cell / sizeof *filter_cell, (struct sock_filter *)filter_cell};
    struct sock_fprog with = {sizeof filter_cell_sized / sizeof *filter_cell_sized,
                              (struct sock_filter *)filter_cell_sized};
    /* The listener exists in every cell: exec capture uses the same one. */
    long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, sized ? &with : &plain);
    must(fd, "install the system call filter", "");
    return (int)fd;
}

static void forward(int signal)
{
    if (agent > 0)
        kill(-(pid_t)agent, signal);
}

/* become_agent runs on PID 1's memory, which waits meanwhile: a copy would cost more than the exec. */
static int become_agent(void *cell)
{
    struct cell *c = cell;
    const struct spec *s = c->spec;
    setpgid(0, 0);
    if (s->terminal) {
        signal(SIGTTOU, SIG_IGN);
        must(tcsetpgrp(c->slave, getpid()), "take the terminal", "");
        c->in[0] = c->out[1] = c->err[1] = c->slave;
    }
    must(dup2(c->in[0], 0) | dup2(c->out[1], 1) | dup2(c->err[1], 2), "set up standard input and output", "");
    syscall(SYS_close_range, 3, ~0U, 0);
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL), signal(SIGTTOU, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    environ = envp_of; /* its PATH is where a name without a slash is looked for */
    if (chdir(spec_string(c, s->dir)) == 0)
        execvp(argv_of[0], argv_of);
    exec_error = errno;
    _exit(exec_error == ENOENT ? 127 : 126);
}

/* reap waits for every orphan of the cell; the status of the agent alone is reported (L19). */
static _Noreturn void reap(struct cell *c, pid_t child)
{
    for (;;) {
        int status;
        pid_t p = waitpid(-1, &status, WUNTRACED);
        if (p < 0)
            _exit(125);
        if (p != child)
            continue;
        int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        note(c, WIFSTOPPED(status) ? NOTE_STOPPED : NOTE_EXITED, code, "", NULL, 0);
        if (!WIFSTOPPED(status))
            _exit(0);
    }
}

/* terminal opens the cell's own pseudo-terminal and returns the side that the warden keeps. */
static int terminal(struct cell *c)
{
    int unlock = 0, master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    must(master, "open a terminal", "");
    must(ioctl(master, TIOCSPTLCK, &unlock), "unlock the terminal", "");
    c->slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    must(c->slave, "open the agent's side of the terminal", "");
    struct winsize size = {.ws_row = c->spec->rows, .ws_col = c->spec->columns};
    ioctl(master, TIOCSWINSZ, &size);
    return master;
}

/* join takes what is PID 1's of a cell. */
static void join(struct cell *c)
{
    close_all(c->fds, c->nfds);
    meet(c, c->slot1, c->fds, &c->nfds);
    memmove(c->fds, c->fds + 1, --c->nfds * sizeof *c->fds);
}

/* enter_cgroups waits until the worker has made them, which it did beside the mounts. */
static void enter_cgroups(struct cell *c)
{
    struct request r;
    close_all(c->fds, c->nfds);
    must(receive_request(c->slot1, &r, c->fds, &c->nfds) - 1, "wait for the cgroups of", "the cell");
    for (unsigned i = 0; i < c->nfds; i++)
        must(write(c->fds[i], "0", 1), "enter a cgroup", "");
}

void pid1_run(struct cell *c)
{
    failure_sink = (struct failure_sink){c->sync[1], true, c->slot1};
    prctl(PR_SET_NAME, "skep-half-pid1");
    must(prctl(PR_SET_PDEATHSIG, SIGKILL), "tie PID 1 to its warden", "");
    c->spec = spec_map(c->spec_fd, c->req.spec_len);
    mounts_begin(c);
    join(c);
    prctl(PR_SET_NAME, "skep-pid1");
    const struct spec *s = c->spec;
    mounts_complete(c);
    int kept[2] = {-1, s->terminal ? terminal(c) : -1};
    must(sethostname(spec_string(c, s->hostname), strlen(spec_string(c, s->hostname))), "name the host", "");
    enter_cgroups(c);
    must(unshare(CLONE_NEWCGROUP), "make the cgroup namespace", "");
    struct rlimit limit = {s->nproc, s->nproc}, none = {0, 0};
    if (s->nproc > 0)
        must(setrlimit(RLIMIT_NPROC, &limit), "limit the processes", "");
    setrlimit(RLIMIT_CORE, &none);
    spec_vector(c, s->argv, s->argc, argv_of);
    spec_vector(c, s->envp, s->envc, envp_of);

    inner_namespace(c);
    drop_capabilities();
    /* The parent's death signal is cleared by a change of credentials. */
    must(prctl(PR_SET_PDEATHSIG, SIGKILL), "tie PID 1 to its warden", "");
    landlock(c);
    kept[0] = seccomp(c);
    note(c, NOTE_BUILT, 0, "", kept, s->terminal ? 2 : 1);
    close_all(kept, 2);
    struct note go;
    if (recv(c->sync[1], &go, sizeof go, 0) != sizeof go || go.kind != NOTE_GO)
        _exit(125);

    static char stack[128 << 10] __attribute__((aligned(16))); /* an exec through a PATH copies arguments */
    /* In the agent's session, but not in its group: an orphaned one could not be stopped from the terminal (L18). */
    setsid();
    if (s->terminal)
        must(ioctl(c->slave, TIOCSCTTY, 0), "open the session's terminal", "");
    pid_t child = clone(become_agent, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, c);
    must(child, "fork the agent", "");
    agent = child;
    static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGWINCH};
    for (unsigned i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        signal(passed_on[i], forward);
    /* From here on PID 1 holds its end of the socket pair, and nothing else. */
    int sync = c->sync[1];
    must(dup3(sync, 3, O_CLOEXEC), "keep the socket to the warden", "");
    c->sync[1] = 3;
    failure_sink.fd = 3;
    close(0), close(1), close(2);
    syscall(SYS_close_range, 4, ~0U, 0);
    note(c, exec_error ? NOTE_EXEC_FAILED : NOTE_EXECUTED, exec_error, exec_error ? argv_of[0] : "", NULL, 0);
    reap(c, child);
}
