/* warden_test.c: what the warden reads is attacked: the spec with damaged bytes, messages with too much in them. */
#include "warden.h"

#include <stdlib.h>
#include <sys/mman.h>

static int failures;

#define CHECK(ok, ...) do { if (!(ok)) { printf("    " __VA_ARGS__); printf("\n"); failures++; } } while (0)

static int sealed(const void *data, size_t n, bool seal)
{
    int fd = memfd_create("spec", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (write(fd, data, n) != (ssize_t)n)
        abort();
    if (seal && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        abort();
    return fd;
}

/* A small whole spec: two records, one argument. */
static size_t example(unsigned char *out)
{
    struct spec s = {.magic = WARDEN_MAGIC, .version = WARDEN_VERSION, .nrecords = 2, .argc = 1, .envc = 0};
    struct record r[2] = {{.op = OP_DIR}, {.op = OP_FILE, .len = 4}};
    const char strings[] = "/dir\0/file\0data\0true\0";
    uint32_t base = sizeof s + sizeof r;
    s.strings = base;
    r[0].path = base, r[1].path = base + 5, r[1].data = base + 11;
    uint32_t arg = base + 16;
    s.argv = s.envp = base + 24, s.dir = base, s.hostname = base + 5;
    memcpy(out, &s, sizeof s);
    memcpy(out + sizeof s, r, sizeof r);
    memset(out + base, 0, 32);
    memcpy(out + base, strings, sizeof strings);
    memcpy(out + base + 24, &arg, 4);
    return base + 32;
}

/* use touches everything that the builder would read. */
static void use(const struct spec *s)
{
    struct cell c = {.spec = s};
    static char *vector[MAX_ARGS + 1];
    size_t n = 0;
    for (uint32_t i = 0; i < s->nrecords; i++) {
        const struct record *r = spec_record(&c, i);
        n += strlen(spec_string(&c, r->path));
        if (r->op == OP_FILE && r->len > 0)
            n += *(const unsigned char *)spec_data(&c, r->data, r->len) + ((const unsigned char *)spec_data(&c, r->data, r->len))[r->len - 1];
    }
    spec_vector(&c, s->argv, s->argc, vector);
    for (uint32_t i = 0; i < s->argc; i++)
        n += strlen(vector[i]);
    n += strlen(spec_string(&c, s->dir)) + strlen(spec_string(&c, s->hostname));
    if (n == SIZE_MAX)
        abort();
}

/* read_spec reports how a process that reads the spec ends. */
static int read_spec(int fd, size_t n)
{
    pid_t pid = fork();
    if (pid == 0) {
        use(spec_map(fd, (uint32_t)n));
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void test_a_whole_spec_is_read(void)
{
    unsigned char spec[512];
    size_t n = example(spec);
    int fd = sealed(spec, n, true);
    CHECK(read_spec(fd, n) == 0, "a whole spec was refused");
    close(fd);
}

static void test_a_spec_that_can_change_is_refused(void)
{
    unsigned char spec[512];
    size_t n = example(spec);
    int fd = sealed(spec, n, false);
    CHECK(read_spec(fd, n) == 125, "a spec without seals was read");
    close(fd);
}

static void test_a_damaged_spec_is_read_or_refused_but_never_beyond(void)
{
    unsigned char spec[512];
    size_t n = example(spec);
    srand(1);
    for (int i = 0; i < 1500; i++) {
        unsigned char bad[512];
        memcpy(bad, spec, n);
        size_t cut = n;
        for (int k = rand() % 4; k >= 0; k--)
            bad[(size_t)rand() % n] = (unsigned char)(rand() % 3 ? rand() : 0xff);
        if (rand() % 4 == 0)
            cut = (size_t)rand() % n + 1;
        int fd = sealed(bad, cut, true);
        int end = read_spec(fd, rand() % 8 ? cut : n);
        CHECK(end == 0 || end == 125, "damage %d ended the reader with %d", i, end);
        close(fd);
    }
}

static int open_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void test_last_word_of_a_peer_that_did_not_read(void)
{
    int pair[2];
    unsigned room = 0;
    char buf[8];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
        abort();
    CHECK(send_fds(pair[0], "unread", 6, NULL, 0) && send_fds(pair[1], "last", 4, NULL, 0), "send");
    close(pair[1]);
    CHECK(receive_fds(pair[0], buf, sizeof buf, NULL, &room) == 4 && !memcmp(buf, "last", 4), "its last word was lost");
    CHECK(receive_fds(pair[0], buf, sizeof buf, NULL, &room) == 0, "it has not ended");
    close(pair[0]);
}

static void test_more_descriptors_than_room_are_closed(void)
{
    int pair[2], sent[3] = {0, 1, 2}, got[2];
    unsigned room = 2;
    char buf[8];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
        abort();
    int before = open_descriptors();
    CHECK(send_fds(pair[0], "x", 1, sent, 3), "send");
    CHECK(receive_fds(pair[1], buf, sizeof buf, got, &room) < 0 && errno == EMSGSIZE, "three fitted into two");
    CHECK(open_descriptors() == before, "descriptors were left open");
    room = 2;
    CHECK(send_fds(pair[0], "0123456789", 10, sent, 1), "send");
    CHECK(receive_fds(pair[1], buf, sizeof buf, got, &room) < 0, "a cut message was taken");
    CHECK(open_descriptors() == before, "descriptors were left open");
    close(pair[0]);
    close(pair[1]);
}

static void test_the_log_keeps_head_and_tail(void)
{
    enum { HEAD = 1 << 20, TAIL = 7 << 20, MORE = 12345 };
    int fd = memfd_create("log", MFD_CLOEXEC);
    log_open(fd);
    static unsigned char chunk[1000];
    size_t total = HEAD + TAIL + MORE;
    for (size_t at = 0; at < total; at += sizeof chunk) {
        size_t n = total - at < sizeof chunk ? total - at : sizeof chunk;
        for (size_t i = 0; i < n; i++)
            chunk[i] = (unsigned char)((at + i) * 2654435761u >> 24);
        log_write(chunk, n);
    }
    uint64_t said;
    CHECK(pread(fd, &said, 8, 8) == 8 && said == total, "the total is %llu", (unsigned long long)said);
    const size_t at[] = {0, HEAD - 1, HEAD + MORE, HEAD + TAIL - 1, HEAD + TAIL, total - 1};
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++) {
        unsigned char b, want = (unsigned char)(at[i] * 2654435761u >> 24);
        size_t where = 64 + (at[i] < HEAD ? at[i] : HEAD + (at[i] - HEAD) % TAIL);
        CHECK(pread(fd, &b, 1, (off_t)where) == 1 && b == want, "byte %zu is wrong", at[i]);
    }
    close(fd);
}

static void run(const char *name, void (*test)(void))
{
    int before = failures;
    printf("=== RUN   %s\n", name);
    fflush(stdout);
    test();
    printf("--- %s: %s (0.00s)\n", failures == before ? "PASS" : "FAIL", name);
    fflush(stdout);
}

int main(void)
{
#define RUN(test) run(#test, test)
    RUN(test_a_whole_spec_is_read);
    RUN(test_a_spec_that_can_change_is_refused);
    RUN(test_a_damaged_spec_is_read_or_refused_but_never_beyond);
    RUN(test_last_word_of_a_peer_that_did_not_read);
    RUN(test_more_descriptors_than_room_are_closed);
    RUN(test_the_log_keeps_head_and_tail);
    printf("%s\n", failures ? "FAIL" : "PASS");
    return failures != 0;
}
