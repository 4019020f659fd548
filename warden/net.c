/* net.c: the cell's network namespace: addresses, routes, the early gate, and the box's sockets (B10 to B15). */
#include "warden.h"

#include <arpa/inet.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/time.h>

#include "tables.h"

static int netlink_open(int protocol)
{
    int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    struct sockaddr_nl self = {.nl_family = AF_NETLINK};
    must(s, "open netlink", "");
    must(bind(s, (struct sockaddr *)&self, sizeof self), "bind netlink", "");
    struct timeval second = {1, 0};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    return s;
}

static char answer[16384] __attribute__((aligned(8)));

/* netlink_call sends a run of messages and waits for the acknowledgement of the one numbered last. The first
 * error that comes back is the result, as a negative errno. */
static int netlink_call(int s, const void *bytes, size_t len, uint32_t last)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (sendto(s, bytes, len, 0, (struct sockaddr *)&kernel, sizeof kernel) != (ssize_t)len)
        return errno ? -errno : -EIO;
    for (;;) {
        ssize_t n = recv(s, answer, sizeof answer, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        unsigned left = (unsigned)n;
        for (struct nlmsghdr *h = (void *)answer; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_len < NLMSG_LENGTH(sizeof(struct nlmsgerr)))
                continue;
            struct nlmsgerr *e = NLMSG_DATA(h);
            if (e->error)
                return e->error;
            if (h->nlmsg_seq == last)
                return 0;
        }
    }
}

static void table(int s, const void *bytes, size_t len, uint32_t last, const char *what)
{
    int r = netlink_call(s, bytes, len, last);
    if (r < 0)
        fail_as(-r, "set up the cell's network:", what);
}

/* loopback fills in an address of the cell's own loopback, and returns how long it is. */
static socklen_t loopback(int family, uint16_t port, struct sockaddr_storage *at)
{
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = family == AF_INET6 ? sizeof six : sizeof four;
    memcpy(at, family == AF_INET6 ? (const void *)&six : &four, len);
    return len;
}

static int socket_on(int family, int type, uint16_t port, bool tolerate)
{
    struct sockaddr_storage at;
    socklen_t len = loopback(family, port, &at);
    int s = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    if (family == AF_INET6)
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    int r = s < 0 ? s : bind(s, (struct sockaddr *)&at, len);
    if (r == 0 && type == SOCK_STREAM)
        r = listen(s, 1024);
    if (r == 0)
        return s;
    if (!tolerate)
        fail("open a listener of the box", "");
    close_all(&s, 1);
    return -1;
}

/* net_build makes the namespace whole, with the sockets that the box will serve: TCP, UDP, DNS over UDP and over TCP, each
 * for both families, and the early gate's log. Without IPv6 the IPv4 socket stands in both places. */
void net_build(struct cell *c)
{
    int rt = netlink_open(NETLINK_ROUTE);
    table(rt, rt_common, sizeof rt_common, rt_common_last, "addresses and routes");
    bool six = netlink_call(rt, rt_ipv6, sizeof rt_ipv6, rt_ipv6_last) == 0;
    /* Nothing between agent and box is a network: a congestion control that paces only costs. */
    (void)!write_text(c->host_proc, "sys/net/ipv4/tcp_congestion_control", "reno");
    /* A connect that is held asks again each second, and not ever more seldom: so soon does it have its answer (B13). */
    (void)!write_text(c->host_proc, "sys/net/ipv4/tcp_syn_linear_timeouts", "120");
    close(rt);

    c->nft = netlink_open(NETLINK_NETFILTER);
    table(c->nft, nft_rules, sizeof nft_rules, nft_rules_last, "packet rules (nf_tables)");
    int nflog = netlink_open(NETLINK_NETFILTER);
    table(nflog, nflog_bind, sizeof nflog_bind, nflog_bind_last, "packet log (nfnetlink_log)");
    int big = 1 << 20, one = 1;
    setsockopt(nflog, SOL_SOCKET, SO_RCVBUF, &big, sizeof big);
    setsockopt(nflog, SOL_NETLINK, NETLINK_NO_ENOBUFS, &one, sizeof one);

    /* Longer than a flow of the box may be idle (B150): while the box has it, the source means this destination. */
    (void)!write_text(c->host_proc, "sys/net/netfilter/nf_conntrack_udp_timeout", "150");
    (void)!write_text(c->host_proc, "sys/net/netfilter/nf_conntrack_udp_timeout_stream", "150");

    c->nfds = 0;
    static const struct { int type; uint16_t port; } listeners[] = {
        {SOCK_STREAM, port_tcp}, {SOCK_DGRAM, port_udp}, {SOCK_DGRAM, port_dns}, {SOCK_STREAM, port_dns}};
    for (unsigned i = 0; i < 4; i++) {
        int four = socket_on(AF_INET, listeners[i].type, listeners[i].port, false);
        int other = six ? socket_on(AF_INET6, listeners[i].type, listeners[i].port, true) : -1;
        c->fds[c->nfds++] = four;
        c->fds[c->nfds++] = other >= 0 ? other : dup(four);
    }
    c->fds[c->nfds++] = nflog;
    c->ipv6 = six;
}

/* net_hand_over gives the box its sockets in one message. The warden keeps no copy, so that the kernel resets new
 * connects when the box dies. */
void net_hand_over(struct cell *c)
{
    struct gate hello = {.op = c->ipv6 ? 6 : 4};
    if (!send_fds(c->box, &hello, sizeof hello, c->fds, c->nfds))
        fail("hand the box its sockets", "");
    close_all(c->fds, c->nfds);
    c->nfds = 0;
}

/* gate_change adds to a set or removes from it: the generated message with the box's values in its holes. */
static int gate_change(struct cell *c, const struct gate *g)
{
    static const char *const gate_sets[] = {[GATE_HELD] = "htc", [GATE_OVER] = "ovr", [GATE_ONCE] = "one", [GATE_TOKEN] = "tok",
        [IPPROTO_TCP] = "tcp", [IPPROTO_UDP] = "udp"};
    if ((g->family != 4 && g->family != 6) || g->transport > IPPROTO_UDP || !gate_sets[g->transport] ||
        g->low == 0 || g->low > g->high)
        return -EINVAL;
    static unsigned char m[256];
    bool six = g->family == 6;
    size_t len = six ? sizeof element6 : sizeof element4, size = six ? 16 : 4;
    size_t key = six ? element6_key : element4_key, end = six ? element6_end : element4_end;
    memcpy(m, six ? element6 : element4, len);
    memcpy(m + element_set, gate_sets[g->transport], 3);
    memcpy(m + key, g->address, size);
    static const uint8_t same[16];
    memcpy(m + end, memcmp(g->last, same, 16) == 0 ? g->address : g->last, size);
    m[key + size] = (unsigned char)(g->low >> 8), m[key + size + 1] = (unsigned char)g->low;
    m[end + size] = (unsigned char)(g->high >> 8), m[end + size + 1] = (unsigned char)g->high;
    if (g->transport == GATE_ONCE) /* a map: in the place of the end of a range is what the key leads to */
        m[end - 6] = NFTA_SET_ELEM_DATA;
    if (g->transport == GATE_TOKEN) /* a set without ranges: nobody reads the end */
        m[end - 6] = NFTA_SET_ELEM_USERDATA, m[end - 5] = 0;
    if (g->op == GATE_REMOVE)
        m[element_type] = NFT_MSG_DELSETELEM, m[element_type + 3] = 0; /* the high half of the flags: NLM_F_CREATE */
    return netlink_call(c->nft, m, len, 2);
}

/* kernel_says passes a question on, and returns how long the answer is. The box reads it. */
static size_t kernel_says(struct cell *c, const void *question, size_t len, char *to, size_t room)
{
    ssize_t n = send(c->nft, question, len, 0) < 0 ? -1 : recv(c->nft, to, room, 0);
    return n < 0 ? 0 : (size_t)n;
}

/* gate_flow asks conntrack where the datagrams of a source were going, or has the kernel judge the next one as a first
 * one (B12): that takes CAP_NET_ADMIN, which the box does not have. */
static size_t gate_flow(struct cell *c, const struct gate *g, char *to, size_t room)
{
    bool six = g->family == 6;
    unsigned char m[128];
    size_t len = six ? sizeof flow6 : sizeof flow4;
    memcpy(m, six ? flow6 : flow4, len);
    memcpy(m + flow_address, g->address, six ? 16 : 4);
    m[flow_port] = (unsigned char)(g->low >> 8), m[flow_port + 1] = (unsigned char)g->low;
    if (g->op == GATE_FORGET)
        m[flow_type] = IPCTNL_MSG_CT_DELETE, m[flow_flags] |= NLM_F_ACK;
    return kernel_says(c, m, len, to, room);
}

/* gate_connect begins a connection to a port of the cell's own loopback, and of nothing else (B173). It waits for
 * nothing: whether somebody listens there is for the box to see. */
static int gate_connect(const struct gate *g, int *s)
{
    struct sockaddr_storage at;
    int family = g->family == 6 ? AF_INET6 : AF_INET;
    socklen_t len = loopback(family, g->low, &at);
    *s = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return *s < 0 || (connect(*s, (struct sockaddr *)&at, len) < 0 && errno != EINPROGRESS) ? -errno : 0;
}

/* gate_serve answers one message of the box; the kernel has acknowledged before we do. At last it tells, unasked and
 * with id 0, a counter that nothing changes any more: the cell's processes are gone, and soon so are we (B17). */
void gate_serve(struct cell *c, bool last)
{
    struct gate g = {.op = GATE_COUNTER};
    ssize_t n = last ? (ssize_t)sizeof g : recv(c->box, &g, sizeof g, MSG_DONTWAIT | MSG_TRUNC);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            close(c->box), c->box = -1;
        return;
    }
    struct { struct gate_ack ack; char kernel[1000]; } out = {.ack = {.op = g.op, .id = g.id}};
    size_t len = sizeof out.ack;
    int inward = -1;
    if (n != sizeof g)
        out.ack.error = EMSGSIZE;
    else if (g.op == GATE_COUNTER)
        len += kernel_says(c, counter_get, sizeof counter_get, out.kernel, sizeof out.kernel);
    else if (g.op == GATE_READY)
        c->boundary = true;
    else if (g.op == GATE_ORIGIN || g.op == GATE_FORGET)
        len += gate_flow(c, &g, out.kernel, sizeof out.kernel);
    else if (g.op == GATE_ADD || g.op == GATE_REMOVE)
        out.ack.error = -gate_change(c, &g);
    else if (g.op == GATE_CONNECT)
        out.ack.error = -gate_connect(&g, &inward);
    else
        out.ack.error = EINVAL;
    (void)send_fds(c->box, &out, len, &inward, inward >= 0 && out.ack.error == 0);
    close_all(&inward, 1);
}
