/* Socket families that know no network namespace, or speak below or beside TCP and UDP (L11, B21). */
#include "attack.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* AF_ALG and a few others may not be built: then outside says so. */
static void try(const char *attempt, long family, int type, int protocol)
{
    long s = syscall(SYS_socket, family, (long)type | SOCK_CLOEXEC, (long)protocol);
    if (s < 0 && (errno == EAFNOSUPPORT || errno == EPROTONOSUPPORT || errno == ESOCKTNOSUPPORT))
        absent(attempt, "%s", strerror(errno));
    else
        report(attempt, s);
    if (s >= 0)
        close((int)s);
}

/* The whole network of a cell must stay as the warden made it: no route, no address, no rule of the agent's. */
static void netlink_change(const char *attempt, uint16_t kind)
{
    struct { struct nlmsghdr h; struct ifinfomsg i; } m = {
        .h = {.nlmsg_len = sizeof m, .nlmsg_type = kind, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .i = {.ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP},
    };
    struct { struct nlmsghdr h; struct nlmsgerr e; char rest[512]; } answer;
    int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (s < 0 || send(s, &m, sizeof m, 0) < 0 || recv(s, &answer, sizeof answer, 0) < (ssize_t)sizeof answer.h) {
        held(attempt, "%s", strerror(errno));
    } else if (answer.h.nlmsg_type == NLMSG_ERROR && answer.e.error) {
        held(attempt, "%s", strerror(-answer.e.error));
    } else {
        escaped(attempt, "the kernel did it");
    }
    if (s >= 0)
        close(s);
}

void sockets(char **args, int count)
{
    (void)args, (void)count;
    try("AF_VSOCK stream", AF_VSOCK, SOCK_STREAM, 0);
    try("AF_VSOCK with high bits", AF_VSOCK | 1L << 32, SOCK_STREAM, 0);
    try("AF_PACKET raw", AF_PACKET, SOCK_RAW, 0);
    try("AF_PACKET datagram", AF_PACKET, SOCK_DGRAM, 0);
    try("raw IPv4", AF_INET, SOCK_RAW, IPPROTO_RAW);
    try("raw IPv4 with flags", AF_INET, SOCK_RAW | SOCK_NONBLOCK, IPPROTO_TCP);
    try("raw IPv4 with high bits", AF_INET | 1L << 32, SOCK_RAW, IPPROTO_RAW);
    try("raw IPv6", AF_INET6, SOCK_RAW, IPPROTO_RAW);
    try("SOCK_PACKET", AF_INET, SOCK_PACKET, 0);
    try("AF_ALG", AF_ALG, SOCK_SEQPACKET, 0);
    try("AF_XDP", 44, SOCK_RAW, 0);
    try("AF_KEY", AF_KEY, SOCK_RAW, 2);
    try("AF_BLUETOOTH", AF_BLUETOOTH, SOCK_RAW, 0);
    try("AF_TIPC", AF_TIPC, SOCK_DGRAM, 0);
    try("AF_CAN", AF_CAN, SOCK_RAW, 1);
    try("AF_RDS", AF_RDS, SOCK_SEQPACKET, 0);
    try("SCTP", AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    try("netlink netfilter", AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
    try("netlink sock_diag", AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
    try("netlink uevent", AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT);
    try("netlink audit", AF_NETLINK, SOCK_RAW, NETLINK_AUDIT);
    try("netlink with high bits", AF_NETLINK | 1L << 32, SOCK_RAW, NETLINK_NETFILTER);
    netlink_change("change a device", RTM_NEWLINK);
}
