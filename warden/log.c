/* log.c: the bounded output of a cell (L18b): the first MiB, the last seven, and how many bytes there were.
 *
 *   0      "skeplog1", total (u64 little endian), zeros to 64
 *   64     the first MiB
 *   64+1M  a ring of 7 MiB: byte n of the output, n >= 1 MiB, stands at (n - 1 MiB) mod 7 MiB
 */
#include "warden.h"

enum { HEADER = 64, HEAD = 1 << 20, TAIL = 7 << 20 };

static int file = -1;
static uint64_t total;

static void put(const void *data, size_t n, uint64_t at)
{
    /* A full disk costs log, never the agent: the total still says what was there. */
    (void)!pwrite(file, data, n, (off_t)at);
}

void log_open(int fd)
{
    char header[HEADER] = "skeplog1";
    file = fd;
    total = 0;
    put(header, sizeof header, 0);
}

void log_write(const void *data, size_t n)
{
    const char *p = data;
    while (n > 0) {
        bool head = total < HEAD;
        uint64_t in_ring = head ? 0 : (total - HEAD) % TAIL;
        size_t room = head ? HEAD - total : TAIL - in_ring;
        size_t part = n < room ? n : room;
        put(p, part, HEADER + (head ? total : HEAD + in_ring));
        p += part;
        n -= part;
        total += part;
    }
    put(&total, sizeof total, 8);
}
