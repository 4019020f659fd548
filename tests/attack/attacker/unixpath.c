/* Unix sockets of the host, by path and by abstract name (L15). */
#include "attack.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static void try(const char *attempt, int type, const char *name, bool is_abstract)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(name), skip = is_abstract ? 1 : 0;
    if (n + skip > sizeof a.sun_path)
        usage("a socket name of at most 107 bytes");
    memcpy(a.sun_path + skip, name, n);
    int s = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (s < 0) {
        held(attempt, "socket: %s", strerror(errno));
        return;
    }
    report(attempt, connect(s, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + skip + n)));
    close(s);
}

void unixpath(char **args, int count)
{
    if (count != 5)
        usage("unixpath STREAM SEQPACKET DATAGRAM ABSTRACT PID");
    try("stream socket by path", SOCK_STREAM, args[0], false);
    try("seqpacket socket by path", SOCK_SEQPACKET, args[1], false);
    try("datagram socket by path", SOCK_DGRAM, args[2], false);
    try("stream socket by abstract name", SOCK_STREAM, args[3], true);
    char up[108], line[512];
    if (snprintf(up, sizeof up, "/proc/%s/root%s", args[4], args[0]) < (int)sizeof up)
        try("stream socket through the root of a process", SOCK_STREAM, up, false);
    FILE *f = fopen("/proc/net/unix", "re");
    bool listed = false;
    while (f && fgets(line, sizeof line, f))
        listed = listed || strstr(line, args[3]);
    if (f)
        fclose(f);
    if (listed)
        escaped("the list of sockets", "it shows %s", args[3]);
    else
        held("the list of sockets", "it shows no %s", args[3]);
}
