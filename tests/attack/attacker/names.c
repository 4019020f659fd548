/* Names that no rule gives, and what a listed name is bent to: other ports, addresses of the host, a second answer.
 * Each is asked for as any program does it, over DNS (B14, B80, B100 to B106). */
#include "attack.h"

#include <arpa/inet.h>
#include <netinet/in.h>
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

/* args: the secret of the servers, then NAME,PORT or NAME,PORT,HOST (another name in the request) or ADDRESS,PORT */
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
        for (int pass = 0; pass < 2 && !through; pass++) {
            int family = pass ? AF_INET6 : AF_INET;
            struct in6_addr addr;
            if (inet_pton(family, name, &addr) != 1 && !resolve(name, family, &addr))
                continue;
            found = true;
            errno = 0;
            through = ask(&addr, family, atoi(port), host ? host : name, args[0]);
        }
        if (through)
            escaped(args[i], "the server told its secret");
        else
            held(args[i], "%s", found ? strerror(errno) : "no address");
        free(name);
    }
}
