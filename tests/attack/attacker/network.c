/* Sockets to what no rule names: the host's loopback, the metadata service, any address, in every way that a
 * stream or a datagram can be sent (B11 to B16). */
#include "attack.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

enum way { TCP, MPTCP, FAST_OPEN, UDP };

static bool answered(int s)
{
    char byte;
    struct pollfd p = {s, POLLIN, 0};
    if (poll(&p, 1, 3000) <= 0) {
        errno = ETIMEDOUT;
        return false;
    }
    ssize_t n = recv(s, &byte, 1, 0);
    if (n == 0)
        errno = ECONNRESET;
    return n == 1;
}

/* speak sends a line and wants a byte in answer, so that a connection to something of the cell's own is no escape. */
static bool speak(const char *host, const char *port, enum way way)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = four.sin_port};
    bool is_four = inet_pton(AF_INET, host, &four.sin_addr) == 1;
    if (!is_four && inet_pton(AF_INET6, host, &six.sin6_addr) != 1)
        usage("network ADDRESS,PORT,tcp|mptcp|tfo|udp...");
    const struct sockaddr *to = is_four ? (const void *)&four : (const void *)&six;
    socklen_t size = is_four ? sizeof four : sizeof six;
    bool stream = way != UDP;
    int s = socket(is_four ? AF_INET : AF_INET6, (stream ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, way == MPTCP ? IPPROTO_MPTCP : 0);
    bool ok = false;
    struct timeval wait = {4, 0};
    if (s < 0)
        return false;
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    static const char words[] = "GET / HTTP/1.0\r\n\r\n";
    if (way == FAST_OPEN)
        ok = sendto(s, words, sizeof words - 1, MSG_FASTOPEN, to, size) >= 0;
    else
        ok = connect(s, to, size) == 0 && send(s, words, sizeof words - 1, MSG_NOSIGNAL) >= 0;
    ok = ok && answered(s);
    int error = errno;
    close(s);
    errno = error;
    return ok;
}

/* args: ADDRESS,PORT,WAY of servers that answer */
void network(char **args, int count)
{
    static const struct { const char *name; enum way way; } ways[] = {
        {"tcp", TCP}, {"mptcp", MPTCP}, {"tfo", FAST_OPEN}, {"udp", UDP}};
    if (count < 1)
        usage("network ADDRESS,PORT,tcp|mptcp|tfo|udp...");
    for (int i = 0; i < count; i++) {
        char *host = strdup(args[i]), *port = strchr(host, ','), *way = port ? strchr(port + 1, ',') : NULL;
        if (!way)
            usage("network ADDRESS,PORT,WAY");
        *port++ = *way++ = 0;
        for (unsigned w = 0; w < sizeof ways / sizeof *ways; w++)
            if (strcmp(way, ways[w].name) == 0) {
                errno = 0;
                if (speak(host, port, ways[w].way))
                    escaped(args[i], "it answered");
                else if (errno == EPROTONOSUPPORT || errno == ENOPROTOOPT)
                    absent(args[i], "%s", strerror(errno));
                else
                    held(args[i], "%s", strerror(errno));
            }
        free(host);
    }
}
