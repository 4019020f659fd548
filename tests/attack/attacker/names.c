/* Names that no rule gives, and what a listed name is bent to: other ports, addresses of the host, a second answer.
 * Each is asked for as any program does it, over DNS (B14, B80, B100 to B106). */
#include "attack.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

static char answer[65536];

/* resolve asks the name server of resolv.conf for one type and returns its first address. */
static bool resolve(const char *name, int family, struct in6_addr *into)
{
    char server[64] = "", text[256];
    FILE *f = fopen("/etc/resolv.conf", "re");
    while (f && fgets(text, sizeof text, f))
        if (sscanf(text, "nameserver %63s", server) == 1)
            break;
    if (f)
        fclose(f);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(53)};
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0 || inet_pton(AF_INET, server, &at.sin_addr) != 1 || connect(s, (struct sockaddr *)&at, sizeof at) < 0)
        return false;
    unsigned char q[512] = {0x5c, 0xe9, 1, 0, 0, 1};
    size_t n = 12;
    for (const char *label = name; *label;) {
        size_t len = strcspn(label, ".");
        q[n++] = (unsigned char)len;
        memcpy(q + n, label, len);
        n += len;
        label += len + (label[len] == '.');
    }
    q[n++] = 0;
    q[n + 1] = family == AF_INET ? 1 : 28;
    q[n + 3] = 1;
    n += 4;
    struct pollfd p = {s, POLLIN, 0};
    ssize_t got = -1;
    if (send(s, q, n, 0) == (ssize_t)n && poll(&p, 1, 5000) == 1)
        got = recv(s, answer, sizeof answer, 0);
    close(s);
    if (got < 12 || answer[7] == 0)
        return false;
    /* Answers stand behind the question; names in them are pointers, or labels to their zero. */
    for (unsigned char *a = (unsigned char *)answer + n, *end = (unsigned char *)answer + got; a + 12 <= end;) {
        while (a < end && *a && *a < 0xc0)
            a += *a + 1;
        a += a < end && *a >= 0xc0 ? 2 : 1;
        if (a + 10 > end)
            return false;
        unsigned type = (unsigned)a[0] << 8 | a[1], len = (unsigned)a[8] << 8 | a[9];
        a += 10;
        if (a + len > end)
            return false;
        if ((type == 1 && len == 4 && family == AF_INET) || (type == 28 && len == 16 && family == AF_INET6)) {
            memcpy(into, a, len);
            return true;
        }
        a += len;
    }
    return false;
}

/* ask connects, asks over plain HTTP and looks for the server's secret in the answer. */
static bool ask(const struct in6_addr *addr, int family, int port, const char *host, const char *secret)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = *addr};
    memcpy(&four.sin_addr, addr, 4);
    int s = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval wait = {20, 0};
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    bool ok = family == AF_INET ? connect(s, (struct sockaddr *)&four, sizeof four) == 0
                                : connect(s, (struct sockaddr *)&six, sizeof six) == 0;
    char request[512];
    int n = snprintf(request, sizeof request, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host);
    ok = ok && send(s, request, (size_t)n, MSG_NOSIGNAL) == n;
    size_t have = 0;
    while (ok && have < sizeof answer - 1) {
        ssize_t got = recv(s, answer + have, sizeof answer - 1 - have, 0);
        if (got <= 0) {
            if (got == 0)
                errno = ECONNRESET;
            break;
        }
        have += (size_t)got;
    }
    answer[have] = 0;
    int error = errno;
    close(s);
    errno = error;
    return ok && strstr(answer, secret);
}

static size_t put16(unsigned char *at, unsigned v)
{
    at[0] = (unsigned char)(v >> 8);
    at[1] = (unsigned char)v;
    return 2;
}

/* hello makes a TLS 1.2 ClientHello that asks for a server name (RFC 8446 4.1.2, RFC 6066 3), or for none. */
static size_t hello(unsigned char *out, const char *name)
{
    static const unsigned char rest[] = {
        0, 10, 0, 6, 0, 4, 0, 29, 0, 23,          /* groups: x25519, P-256 */
        0, 11, 0, 2, 1, 0,                        /* points: uncompressed */
        0, 13, 0, 8, 0, 6, 4, 3, 8, 4, 4, 1,      /* signatures */
    };
    static const unsigned char ciphers[] = {0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0};
    unsigned len = (unsigned)strlen(name);
    unsigned char *p = out + 9;
    p += put16(p, 0x0303);
    memset(p, 0x5c, 32);
    p += 32;
    *p++ = 0; /* no session */
    memcpy(p, ciphers, sizeof ciphers);
    p += sizeof ciphers;
    unsigned named = len ? 9 + len : 0;
    p += put16(p, named + sizeof rest);
    if (len) {
        p += put16(p, 0);
        p += put16(p, len + 5);
        p += put16(p, len + 3);
        *p++ = 0;
        p += put16(p, len);
        memcpy(p, name, len);
        p += len;
    }
    memcpy(p, rest, sizeof rest);
    p += sizeof rest;
    unsigned body = (unsigned)(p - out) - 9;
    out[0] = 22, out[1] = 3, out[2] = 1;
    put16(out + 3, body + 4);
    out[5] = 1, out[6] = 0;
    put16(out + 7, body);
    return (size_t)(p - out);
}

/* greet sends a ClientHello, whole or byte by byte, and wants a handshake back: an alert is a refusal. */
static bool greet(const struct in6_addr *addr, int port, const char *name, bool split)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    unsigned char bytes[1024], first = 0;
    memcpy(&four.sin_addr, addr, 4);
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct timeval wait = {20, 0};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    size_t n = hello(bytes, name), step = split ? 1 : n;
    bool ok = connect(s, (struct sockaddr *)&four, sizeof four) == 0;
    for (size_t i = 0; ok && i < n; i += step)
        ok = send(s, bytes + i, step, MSG_NOSIGNAL) == (ssize_t)step;
    ssize_t got = ok ? recv(s, &first, 1, 0) : -1;
    if (got == 0 || (got == 1 && first != 22))
        errno = ECONNABORTED;
    int error = errno;
    close(s);
    errno = error;
    return got == 1 && first == 22;
}

/* args: the secret of the servers, then NAME,PORT or ADDRESS,PORT, or with a third part: another HOST in the request,
 * or tls-NAME and split-NAME for the name in a ClientHello */
void names(char **args, int count)
{
    if (count < 2)
        usage("names SECRET NAME,PORT[,HOST]...");
    for (int i = 1; i < count; i++) {
        char *name = strdup(args[i]), *port = strchr(name, ','), *host;
        if (!port)
            usage("names SECRET NAME,PORT[,HOST]...");
        *port++ = 0;
        host = strchr(port, ',');
        if (host)
            *host++ = 0;
        bool found = false, through = false;
        bool tls = host && (strncmp(host, "tls-", 4) == 0 || strncmp(host, "split-", 6) == 0);
        for (int pass = 0; pass < (tls ? 1 : 2) && !through; pass++) {
            int family = pass ? AF_INET6 : AF_INET;
            struct in6_addr addr;
            if (inet_pton(family, name, &addr) != 1 && !resolve(name, family, &addr))
                continue;
            found = true;
            errno = 0;
            if (host && strncmp(host, "tls-", 4) == 0)
                through = greet(&addr, atoi(port), host + 4, false);
            else if (host && strncmp(host, "split-", 6) == 0)
                through = greet(&addr, atoi(port), host + 6, true);
            else
                through = ask(&addr, family, atoi(port), host ? host : name, args[0]);
        }
        if (through)
            escaped(args[i], "the server told its secret");
        else
            held(args[i], "%s", found ? strerror(errno) : "no address");
        free(name);
    }
}
