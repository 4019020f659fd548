/* spec.c: the only reader of the spec. The worker wrote it, the seals keep it from changing, and still no
 * offset is believed. */
#include "warden.h"

#include <sys/mman.h>

static const char *base;
static uint32_t size;

static _Noreturn void malformed(const char *what)
{
    fail_as(EBADMSG, "read the build request:", what);
}

const struct spec *spec_map(int fd, uint32_t len)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & (F_SEAL_WRITE | F_SEAL_SHRINK)) != (F_SEAL_WRITE | F_SEAL_SHRINK))
        malformed("it is not sealed");
    if (len < sizeof(struct spec) || len > MAX_SPEC || fstat(fd, &st) < 0 || st.st_size < (off_t)len)
        malformed("its size");
    void *p = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        malformed("it cannot be mapped");
    base = p;
    size = len;
    const struct spec *s = p;
    if (s->magic != WARDEN_MAGIC || s->version != WARDEN_VERSION)
        malformed("its version");
    if (s->nrecords > MAX_RECORDS || s->strings < sizeof *s + s->nrecords * sizeof(struct record) ||
        s->strings >= len || base[len - 1] != 0)
        malformed("its layout");
    if (s->argc == 0 || s->argc > MAX_ARGS || s->envc > MAX_ARGS)
        malformed("its argument count");
    return s;
}

/* meet waits until the worker completes the cell (L22), and reads its spec. */
struct request meet(struct cell *c, int slot, int *fds, unsigned *n)
{
    struct request r;
    ssize_t got = receive_request(slot, &r, fds, n);
    if (got == 0)
        _exit(0);
    failure_sink.slot = -1;
    if (failure_sink.fd < 0 && *n > 1)
        failure_sink.fd = fds[1];
    must(got, "read", "the build request");
    c->spec = spec_map(fds[0], r.spec_len);
    close(fds[0]);
    return r;
}

const struct record *spec_record(const struct cell *c, uint32_t i)
{
    return (const struct record *)(base + sizeof *c->spec) + i;
}

/* Every string ends inside the spec, since its last byte is NUL. */
const char *spec_string(const struct cell *c, uint32_t offset)
{
    if (offset < c->spec->strings || offset >= size)
        malformed("a string lies outside");
    return base + offset;
}

const void *spec_data(const struct cell *c, uint32_t offset, uint32_t len)
{
    if (offset < c->spec->strings || offset > size || len > size - offset)
        malformed("a file's content lies outside");
    return base + offset;
}

/* spec_vector fills into, which has room for MAX_ARGS + 1, and ends it with NULL. */
void spec_vector(const struct cell *c, uint32_t offset, uint32_t count, char **into)
{
    if (count > MAX_ARGS)
        malformed("too many arguments");
    const char *array = spec_data(c, offset, count * 4);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at;
        memcpy(&at, array + 4 * (size_t)i, 4);
        into[i] = (char *)spec_string(c, at);
    }
    into[count] = NULL;
}
