/* The worker, which holds the capabilities: asked for what it can do by somebody who is not skepd (L6a). */
#include "attack.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ask sends a request as skepd would, and says whether an answer came. */
static bool ask(const char *path, const char *request)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int body = memfd_create("skep-attack", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (s < 0 || body < 0 || write(body, request, strlen(request)) < 0 ||
        fcntl(body, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return false;
    if (connect(s, (struct sockaddr *)&a, sizeof a) < 0)
        return false;
    char head[] = "{\"v\":1,\"id\":7}", answer[512];
    union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
    struct iovec v = {head, sizeof head - 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &body, sizeof body);
    if (sendmsg(s, &m, MSG_NOSIGNAL) < 0)
        return false;
    struct pollfd p = {s, POLLIN, 0};
    if (poll(&p, 1, 10000) != 1) {
        errno = ETIMEDOUT;
        return false;
    }
    ssize_t n = recv(s, answer, sizeof answer, 0);
    if (n == 0)
        errno = ECONNRESET;
    return n > 0;
}

void worker(char **args, int count)
{
    if (count != 1)
        usage("worker SOCKET");
    static const struct { const char *name, *request; } requests[] = {
        {"ask what it can do", "{\"probe\":{}}"},
        {"ask for a cell", "{\"build\":{\"cell\":\"abcdefghijklmnopqrstuvwxyz\",\"argv\":[\"true\"],\"dir\":\"/\"}}"},
        {"ask to remove a cell's groups", "{\"close\":{\"cell\":\"abcdefghijklmnopqrstuvwxyz\"}}"},
    };
    for (unsigned i = 0; i < sizeof requests / sizeof *requests; i++) {
        errno = 0;
        if (ask(args[0], requests[i].request))
            escaped(requests[i].name, "the worker answered");
        else
            held(requests[i].name, "%s", strerror(errno));
    }
}
