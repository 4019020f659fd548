/*
 * main.c: the resident parent. It waits for requests of the worker on descriptor 3, clones one warden for each,
 * writes its id maps, and answers with a pidfd. It is single-threaded, holds no state of any cell, and outlives none
 * of the worker's connections: when descriptor 3 closes it ends, and the wardens live on.
 */
#include "warden.h"

#include <grp.h>

static struct cell cell;
static int message_fds[MAX_FDS];

static pid_t clone_into(uint64_t flags, int *pidfd)
{
    struct clone_args a = {.flags = flags | CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)pidfd, .exit_signal = SIGCHLD};
    return (pid_t)syscall(SYS_clone3, &a, sizeof a);
}

/* take sorts the descriptors of a request into the cell. */
static bool take(const struct request *r, const int *fds, unsigned n)
{
    if (n < 3 || (r->flags & ~(uint32_t)DETACHED))
        return false;
    cell = (struct cell){.req = *r, .slot = fds[0], .slot1 = fds[1], .spec_fd = fds[2], .nfds = n - 3};
    cell.control = cell.box = cell.listening = cell.stdio = cell.master = cell.slave = cell.listener = cell.nft = -1;
    fcntl(cell.slot, F_SETFL, 0), fcntl(cell.slot1, F_SETFL, 0); /* as with ours */
    memcpy(cell.fds, fds + 3, cell.nfds * sizeof *fds);
    return true;
}

/* become_warden runs in the clone, in the cell's outer namespaces, once the maps are there. */
static _Noreturn void become_warden(int go)
{
    char byte;
    failure_sink = (struct failure_sink){-1, false, cell.slot};
    prctl(PR_SET_NAME, "skep-half");
    if (read(go, &byte, 1) != 1)
        _exit(125);
    close(go);
    must(setresgid(cell.req.gid_in, cell.req.gid_in, cell.req.gid_in), "take the group of", "the cell");
    must(setresuid(cell.req.uid_in, cell.req.uid_in, cell.req.uid_in), "take the id of", "the cell");
    /* The id map is written through /proc/self, which belongs to root while a process is not dumpable. */
    must(prctl(PR_SET_DUMPABLE, 1), "open /proc/self to its owner", "");
    serve_cell(&cell);
}

static void build(const struct request *r, unsigned n)
{
    int go[2] = {-1, -1}, pidfd = -1;
    pid_t pid = -1;
    if (take(r, message_fds, n) && pipe2(go, O_CLOEXEC) == 0)
        pid = clone_into(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS, &pidfd);
    if (pid == 0) {
        close(3);
        close(go[1]);
        become_warden(go[0]);
    }
    char proc[32];
    snprintf(proc, sizeof proc, "/proc/%d", pid);
    bool built = pid > 0 && write_maps(proc, r, r->uid_out, r->gid_out) == 0 && write(go[1], "g", 1) == 1;
    struct reply a = {.magic = WARDEN_MAGIC, .error = built ? 0 : errno, .pid = (uint32_t)pid};
    if (pid > 0 && !built)
        kill(pid, SIGKILL);
    close_all(message_fds, n); /* from the answer on, a half-built cell that has gone hangs up */
    if (!send_fds(3, &a, sizeof a, &pidfd, built ? 1 : 0))
        _exit(1);
    close_all((int[]){go[0], go[1], pidfd}, 3);
}

int main(void)
{
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    /* Children are reaped by the kernel; a cell's end is known by its pidfd and its event. */
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "skep-warden");
    if (getuid() == 0)
        setgroups(0, NULL);
    umask(0);
    fcntl(3, F_SETFL, 0); /* the worker's end may be non-blocking; ours waits */
    for (;;) {
        struct request r;
        unsigned n;
        ssize_t got = receive_request(3, &r, message_fds, &n);
        if (got == 0 || (got < 0 && errno != EMSGSIZE && errno != EBADMSG))
            return got < 0;
        errno = EBADMSG; /* of one that is not ours */
        build(&r, n);
    }
}
