/*
 * serve.c: the warden's life as the parent of a cell: one loop over PID 1, the agent's output, the one attached
 * client, skepd's commands, the box's gate messages and the seccomp notifications. It never blocks on anything that the
 * cell controls: every descriptor of the agent's side is non-blocking, and a slow client only slows the agent down.
 */
#include "warden.h"

#include <poll.h>
#include <sys/sysinfo.h>
#include <termios.h>

enum { CHUNK = 64 << 10 };

/* Frames of the attached client (L18b): type, length (u32 little endian), bytes. */
enum { FRAME_STDIN = 0, FRAME_STDOUT = 1, FRAME_STDERR = 2, FRAME_RESIZE = 3, FRAME_EOF = 4, FRAME_DETACH = 5, FRAME_STOPPED = 6 };

static struct {
    char in[5 + CHUNK];   /* one frame from the client, as far as it has come */
    size_t in_len;
    char out[5 + CHUNK];  /* one frame to the client, as far as it has not gone */
    size_t out_at, out_len;
    char to_agent[CHUNK]; /* input that the agent has not taken yet */
    size_t agent_at, agent_len;
    bool eof;             /* close the agent's input once it has taken that */
} client;

static int exit_code = -1;
static bool started, suspended;

static void tell(struct cell *c, uint32_t kind, int32_t a, const char *text)
{
    struct event e = {.kind = kind, .a = a, .c = (uint32_t)c->pid1_pid};
    snprintf(e.text, sizeof e.text, "%s", text);
    if (c->control >= 0 && send(c->control, &e, sizeof e, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN) {
        close(c->control);
        c->control = -1;
    }
}

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void detach(struct cell *c)
{
    if (c->stdio < 0)
        return;
    drop(&c->stdio);
    client.in_len = client.out_len = client.out_at = 0;
    tell(c, EV_DETACHED, 0, "");
}

static void attach_client(struct cell *c, int fd)
{
    detach(c);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    c->stdio = fd;
    tell(c, EV_ATTACHED, 0, "");
}

/* flush_client sends what is left of the frame; false while some is. */
static bool flush_client(struct cell *c)
{
    while (c->stdio >= 0 && client.out_at < client.out_len) {
        ssize_t n = send(c->stdio, client.out + client.out_at, client.out_len - client.out_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n < 0) {
            detach(c);
            break;
        }
        client.out_at += (size_t)n;
    }
    client.out_at = client.out_len = 0;
    return true;
}

/* to_client sends the frame whose bytes stand in client.out, where no other is left over. */
static void to_client(struct cell *c, char kind, uint32_t len)
{
    client.out[0] = kind;
    memcpy(client.out + 1, &len, 4);
    client.out_at = 0;
    client.out_len = 5 + len;
    flush_client(c);
}

/* from_agent copies one chunk of output to the log and the client. It is called only while no frame is left over. */
static bool from_agent(struct cell *c, int *fd, char kind)
{
    ssize_t n = read(*fd, client.out + 5, CHUNK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) { /* EIO: the last process has closed its terminal */
        if (!c->spec->terminal || exit_code >= 0)
            drop(fd);
        return false;
    }
    log_write(client.out + 5, (size_t)n);
    to_client(c, kind, (uint32_t)n);
    return true;
}

static int *agent_input(struct cell *c) { return c->spec->terminal ? &c->master : &c->in[1]; }

static void to_agent(struct cell *c)
{
    int *fd = agent_input(c);
    while (*fd >= 0 && client.agent_at < client.agent_len) {
        ssize_t n = write(*fd, client.to_agent + client.agent_at, client.agent_len - client.agent_at);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            client.agent_at = client.agent_len = 0;
            if (!c->spec->terminal)
                drop(fd);
            return;
        }
        client.agent_at += (size_t)n;
    }
    client.agent_at = client.agent_len = 0;
    if (client.eof && !c->spec->terminal)
        drop(fd);
}

static void frame(struct cell *c, char kind, const char *data, uint32_t len)
{
    switch (kind) {
    case FRAME_STDIN:
        memcpy(client.to_agent, data, len);
        client.agent_at = 0;
        client.agent_len = len;
        to_agent(c);
        break;
    case FRAME_RESIZE:
        if (len == 4 && c->master >= 0) {
            struct winsize size = {0};
            memcpy(&size, data, 4); /* rows, columns */
            ioctl(c->master, TIOCSWINSZ, &size);
        }
        break;
    case FRAME_EOF:
        client.eof = true;
        to_agent(c);
        break;
    case FRAME_STOPPED: /* no longer: the user has continued the client */
        kill(c->pid1_pid, SIGCONT);
        break;
    default: /* FRAME_DETACH, and what we do not know */
        detach(c);
    }
}

/* from_client takes bytes as they come; the next frame waits until the agent has taken the last input. */
static void from_client(struct cell *c)
{
    ssize_t n = recv(c->stdio, client.in + client.in_len, sizeof client.in - client.in_len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        detach(c);
        /* A terminal that hangs up tells its programs so; the client that only leaves sends FRAME_DETACH first. */
        if (c->spec->terminal && c->pid1_pid > 0)
            kill(c->pid1_pid, SIGHUP), kill(c->pid1_pid, SIGCONT); /* it may be stopped */
        return;
    }
    client.in_len += (size_t)n;
    while (client.in_len >= 5 && client.agent_len == 0 && c->stdio >= 0) {
        uint32_t len;
        memcpy(&len, client.in + 1, 4);
        if (len > CHUNK)
            return detach(c);
        if (client.in_len < 5 + len)
            return;
        frame(c, client.in[0], client.in + 5, len);
        client.in_len = c->stdio < 0 ? 0 : client.in_len - 5 - len;
        memmove(client.in, client.in + 5 + len, client.in_len);
    }
}

static void command(struct cell *c)
{
    struct command m;
    int fd = -1;
    unsigned nfds = 1;
    ssize_t n = receive_fds(c->control, &m, sizeof m, &fd, &nfds);
    if (n == 0 || (n < 0 && errno != EMSGSIZE && errno != EAGAIN))
        return drop(&c->control);
    if (n == sizeof m && m.kind == CMD_ATTACH && nfds == 1)
        return attach_client(c, fd);
    close_all(&fd, nfds);
    if (n == sizeof m && m.kind == CMD_SIGNAL && m.a > 0 && m.a < NSIG)
        kill(c->pid1_pid, m.a);
    else if (n == sizeof m && m.kind == CMD_KILL)
        kill(c->pid1_pid, SIGKILL);
}

/* fill answers sysinfo(2) and sched_getaffinity(2) with the cell's own size (L13b). The answer is written through a
 * descriptor of the caller's memory, opened before the call is known to be still waiting: a number that was reused
 * meanwhile opens the wrong memory, and then the check fails and nothing is written. */
static long fill(struct cell *c, struct seccomp_notif *q, int mem)
{
    union { struct sysinfo size; unsigned char mask[128]; } a = {0};
    size_t n = sizeof a.size;
    bool size = q->data.nr == SYS_sysinfo;
    if (size) {
        sysinfo(&a.size);
        uint64_t total = (uint64_t)a.size.totalram * a.size.mem_unit, free = (uint64_t)a.size.freeram * a.size.mem_unit;
        if (c->spec->memory > 0 && c->spec->memory < total) {
            total = c->spec->memory;
            free = free < total ? free : total;
        }
        a.size.mem_unit = 1, a.size.procs = 1;
        a.size.totalram = total, a.size.freeram = free;
        a.size.sharedram = a.size.bufferram = a.size.totalswap = a.size.freeswap = a.size.totalhigh = a.size.freehigh = 0;
    } else {
        long got = syscall(SYS_sched_getaffinity, 0, sizeof a.mask, a.mask);
        if (got < 0)
            return -errno;
        if (q->data.args[1] < (uint64_t)got)
            return -EINVAL;
        n = (size_t)got;
        for (unsigned i = 0, seen = 0; i < n * 8 && c->spec->cpus > 0; i++)
            if (a.mask[i / 8] & (1 << (i % 8)) && ++seen > c->spec->cpus)
                a.mask[i / 8] &= (unsigned char)~(1 << (i % 8));
    }
    if (ioctl(c->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &q->id) < 0)
        return -EINTR;
    if (pwrite(mem, &a, n, (off_t)q->data.args[size ? 0 : 2]) != (ssize_t)n)
        return -EFAULT;
    return size ? 0 : (long)n;
}

static void notification(struct cell *c)
{
    struct seccomp_notif q;
    memset(&q, 0, sizeof q);
    if (ioctl(c->listener, SECCOMP_IOCTL_NOTIF_RECV, &q) < 0) {
        if (errno != EINTR && errno != ENOENT && errno != EAGAIN)
            drop(&c->listener);
        return;
    }
    char path[32];
    snprintf(path, sizeof path, "%u/mem", q.pid);
    int mem = openat(c->host_proc, path, O_RDWR | O_CLOEXEC);
    long r = mem < 0 ? -EPERM : fill(c, &q, mem);
    close_all(&mem, 1);
    struct seccomp_notif_resp a = {.id = q.id, .error = r < 0 ? (int32_t)r : 0, .val = r < 0 ? 0 : r};
    (void)ioctl(c->listener, SECCOMP_IOCTL_NOTIF_SEND, &a);
}

/* from_pid1 takes one note, if there is one. */
static bool from_pid1(struct cell *c)
{
    struct note n;
    unsigned nfds = 0;
    ssize_t got = receive_fds(c->sync[0], &n, sizeof n, NULL, &nfds);
    if (got != sizeof n) {
        if (got == 0 || (got < 0 && errno != EAGAIN))
            drop(&c->sync[0]);
        return false;
    }
    n.text[sizeof n.text - 1] = 0;
    if (n.kind == NOTE_EXITED && exit_code < 0)
        exit_code = n.a & 0xff;
    suspended = suspended || n.kind == NOTE_STOPPED;
    if (started || n.kind == NOTE_EXITED)
        return true; /* a taken PID 1 may say what it likes: only the end is believed, and only once */
    started = n.kind == NOTE_EXECUTED || n.kind == NOTE_EXEC_FAILED;
    if (started || n.kind == NOTE_FAILED)
        tell(c, n.kind == NOTE_EXECUTED ? EV_STARTED : started ? EV_EXEC_FAILED : EV_FAILED, n.a, n.text);
    return true;
}

/* accept_daemon lets a skepd that was started again take over (L20a): its directory lets nobody else connect. */
static void accept_daemon(struct cell *c)
{
    int fd = accept4(c->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    drop(&c->control);
    c->control = fd;
    tell(c, started ? EV_STARTED : EV_FAILED, 0, "");
}

/* keep_only leaves the warden what its loop needs: the packet sets, and the memory of a notified process. */
static void keep_only(void)
{
    hold(1U << CAP_NET_ADMIN | 1U << CAP_SYS_PTRACE);
    must(prctl(PR_SET_DUMPABLE, 0), "close /proc/self", "");
}

static void pipes(struct cell *c)
{
    int *pairs[] = {c->in, c->out, c->err};
    for (unsigned i = 0; i < 3; i++) {
        must(pipe2(pairs[i], O_CLOEXEC), "make a pipe", "");
        fcntl(pairs[i][i == 0], F_SETFL, O_NONBLOCK); /* the warden's side */
    }
}

/* join takes what is the warden's of a cell. */
static void join(struct cell *c)
{
    static int fds[MAX_FDS];
    unsigned n;
    struct request r = meet(c, c->slot, fds, &n);
    prctl(PR_SET_NAME, "skep-warden");
    drop(&c->slot);
    if ((r.flags & ~(uint32_t)HAS_STDIO) || n != 5 + r.flags)
        fail_as(EBADMSG, "read the build request:", "the warden's part");
    c->control = fds[1], c->box = fds[2], c->listening = fds[3], c->log = fds[4], c->stdio = r.flags ? fds[5] : -1;
    fcntl(c->box, F_SETFL, O_NONBLOCK); /* one that does not read is not waited for */
    log_open(c->log);
    if (c->spec->terminal)
        drop(&c->in[1]), drop(&c->out[0]), drop(&c->err[0]);
}

/* built waits for PID 1's note that all stands but the agent, and takes the descriptors that come with it. */
static void built(struct cell *c)
{
    struct note n = {0};
    int fds[2];
    unsigned want = c->spec->terminal ? 2 : 1, nfds = 2;
    ssize_t got = receive_fds(c->sync[0], &n, sizeof n, fds, &nfds);
    n.text[sizeof n.text - 1] = 0;
    if (got != sizeof n || n.kind != NOTE_BUILT || nfds != want) {
        tell(c, EV_FAILED, n.kind == NOTE_FAILED ? n.a : ECHILD, n.kind == NOTE_FAILED ? n.text : "PID 1 died");
        _exit(125);
    }
    c->listener = fds[0];
    c->master = want == 2 ? fds[1] : -1;
}

/* start clones PID 1, which builds the tree while the network is built here, and may start the agent when both stand
 * and the box has answered under the cell's policy (B163). */
static void start(struct cell *c)
{
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, c->sync), "make a socket pair", "");
    pipes(c);
    c->host_proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    must(c->host_proc, "open", "/proc");
    struct clone_args a = {.flags = CLONE_NEWPID | CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)&c->pid1,
                           .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &a, sizeof a);
    must(pid, "clone PID 1", "");
    if (pid == 0) {
        drop(&c->sync[0]), drop(&c->slot), drop(&c->in[1]), drop(&c->out[0]), drop(&c->err[0]);
        pid1_run(c);
    }
    c->pid1_pid = pid;
    drop(&c->sync[1]), drop(&c->in[0]), drop(&c->out[1]), drop(&c->err[1]), drop(&c->slot1), drop(&c->spec_fd);
    close_all(c->fds, c->nfds);
    net_build(c);
    keep_only();
    join(c);
    net_hand_over(c);
    for (bool going = false; !going || c->listener < 0;) {
        struct pollfd p[2] = {{c->box, POLLIN, 0}, {c->listener < 0 ? c->sync[0] : -1, POLLIN, 0}};
        if (c->box < 0)
            fail_as(EPIPE, "wait for the box of", "the cell");
        poll(p, 2, -1);
        if (p[0].revents)
            gate_serve(c, false);
        if (p[1].revents)
            built(c);
        const struct note go = {.kind = NOTE_GO};
        if (c->boundary && !going)
            must(send(c->sync[0], &go, sizeof go, MSG_NOSIGNAL), "let PID 1 go on", "");
        going = c->boundary;
    }
    fcntl(c->sync[0], F_SETFL, O_NONBLOCK);
}

/* finish empties what the agent left in its pipes, says how it ended, and ends. */
static _Noreturn void finish(struct cell *c)
{
    while (from_pid1(c))
        ;
    gate_serve(c, true);
    const char *why = exit_code < 0 ? "PID 1 of the cell was killed" : "";
    failure_sink.fd = c->control;
    if (exit_code < 0 && !started) /* if it has said why itself, that came first and is believed */
        fail_as(ECHILD, why, "");
    if (exit_code < 0)
        exit_code = 128 + SIGKILL;
    int *outputs[] = {c->spec->terminal ? &c->master : &c->out[0], &c->err[0]};
    for (unsigned i = 0; i < 2;) {
        /* Five seconds without progress, and a client that does not read is left behind. */
        struct pollfd p = {c->stdio, POLLOUT, 0};
        if (!flush_client(c)) {
            if (poll(&p, 1, 5000) <= 0)
                detach(c);
        } else if (*outputs[i] < 0 || !from_agent(c, outputs[i], i == 0 ? FRAME_STDOUT : FRAME_STDERR))
            i++;
    }
    drop(&c->stdio);
    tell(c, EV_EXITED, exit_code, why);
    _exit(0);
}

void serve_cell(struct cell *c)
{
    signal(SIGCHLD, SIG_DFL);
    start(c);
    if (c->stdio >= 0)
        fcntl(c->stdio, F_SETFL, O_NONBLOCK);
    else if (!c->spec->terminal)
        drop(&c->in[1]); /* nobody will ever write: the agent reads the end of its input */
    for (;;) {
        if (suspended && client.out_len == 0)
            suspended = false, to_client(c, FRAME_STOPPED, 0);
        enum { PID1, SYNC, LISTEN, NOTIFY, GATE, CONTROL, OUT, ERR, IN, CLIENT, COUNT };
        bool idle = client.out_len == 0;
        int *out = c->spec->terminal ? &c->master : &c->out[0];
        short client_events = (short)((client.agent_len == 0 ? POLLIN : 0) | (idle ? 0 : POLLOUT));
        struct pollfd p[COUNT] = {
            [PID1] = {c->pid1, POLLIN, 0}, [SYNC] = {c->sync[0], POLLIN, 0},
            [LISTEN] = {c->listening, POLLIN, 0}, [CONTROL] = {c->control, POLLIN, 0},
            [NOTIFY] = {c->listener, POLLIN, 0}, [GATE] = {c->box, POLLIN, 0},
            [OUT] = {idle ? *out : -1, POLLIN, 0}, [ERR] = {idle ? c->err[0] : -1, POLLIN, 0},
            [IN] = {client.agent_len > 0 ? *agent_input(c) : -1, POLLOUT, 0}, [CLIENT] = {c->stdio, client_events, 0}};
        if (poll(p, COUNT, -1) < 0 && errno != EINTR)
            _exit(125);
        if (p[SYNC].revents)
            from_pid1(c);
        if (p[NOTIFY].revents & POLLIN)
            notification(c);
        else if (p[NOTIFY].revents)
            drop(&c->listener);
        if (p[GATE].revents)
            gate_serve(c, false);
        if (p[OUT].revents)
            from_agent(c, out, FRAME_STDOUT);
        if (p[ERR].revents && client.out_len == 0)
            from_agent(c, &c->err[0], FRAME_STDERR);
        if (p[IN].revents)
            to_agent(c);
        if (p[CLIENT].revents & POLLOUT)
            flush_client(c);
        if (c->stdio >= 0 && (p[CLIENT].revents & (POLLIN | POLLHUP | POLLERR)))
            from_client(c);
        if (p[LISTEN].revents)
            accept_daemon(c);
        if (p[CONTROL].revents)
            command(c);
        if (p[PID1].revents)
            finish(c);
    }
}
