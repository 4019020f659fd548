/* wire.c: one message with its descriptors over a seqpacket socket. No call is interrupted here: only PID 1 has handlers,
 * and those restart what they interrupt. */
#include "warden.h"

#include <sys/uio.h>

void close_all(int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* receive_fds takes one message; *nfds goes in as room and comes out as count. A message that was cut, in
 * bytes or descriptors, is an error and leaves no descriptor open. What a peer sent before it ended is taken also where
 * it left a message of ours unread, of which the kernel tells first, once. */
ssize_t receive_fds(int sock, void *buf, size_t len, int *fds, unsigned *nfds)
{
    static char space[CMSG_SPACE(sizeof(int) * MAX_FDS)] __attribute__((aligned(8)));
    struct iovec iov = {buf, len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    unsigned room = *nfds;
    ssize_t n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
    n = n < 0 && errno == ECONNRESET ? recvmsg(sock, &m, MSG_CMSG_CLOEXEC) : n;
    *nfds = 0;
    if (n < 0)
        return n;
    bool bad = (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        const int *got = (const void *)CMSG_DATA(h);
        for (size_t i = 0; i < (h->cmsg_len - CMSG_LEN(0)) / sizeof *got; i++) {
            bad = bad || *nfds >= room;
            if (*nfds < room)
                fds[(*nfds)++] = got[i];
            else
                close(got[i]);
        }
    }
    if (bad) {
        close_all(fds, *nfds);
        *nfds = 0;
        errno = EMSGSIZE;
        return -1;
    }
    return n;
}

/* receive_request takes one request of the worker: 0 at its end, negative if what came is none. */
ssize_t receive_request(int sock, struct request *r, int *fds, unsigned *nfds)
{
    *nfds = MAX_FDS;
    ssize_t got = receive_fds(sock, r, sizeof *r, fds, nfds);
    if (got == 0 || (got == sizeof *r && r->magic == WARDEN_MAGIC && r->version == WARDEN_VERSION && r->nfds == *nfds))
        return got;
    close_all(fds, *nfds);
    *nfds = 0;
    if (got > 0)
        errno = EBADMSG;
    return -1;
}

bool send_fds(int sock, const void *buf, size_t len, const int *fds, unsigned nfds)
{
    static char space[CMSG_SPACE(sizeof(int) * MAX_FDS)] __attribute__((aligned(8)));
    struct iovec iov = {(void *)buf, len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds > MAX_FDS)
        return false;
    if (nfds > 0) {
        memset(space, 0, sizeof space);
        m.msg_control = space;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memcpy(CMSG_DATA(h), fds, sizeof(int) * nfds);
    }
    return sendmsg(sock, &m, MSG_NOSIGNAL) == (ssize_t)len;
}
