/* fail.c: how an error leaves a process of the warden, and the small writes to /proc that may fail. */
#include "warden.h"

struct failure_sink failure_sink = {-1, false};

/* fail_as reports what was attempted, on what, and why; then the process ends, and with it the cell. */
void fail_as(int error, const char *what, const char *on)
{
    if (failure_sink.is_note) {
        struct note n = {.kind = NOTE_FAILED, .a = error};
        snprintf(n.text, sizeof n.text, "%s %s", what, on);
        (void)!send(failure_sink.fd, &n, sizeof n, MSG_NOSIGNAL);
    } else if (failure_sink.fd >= 0) {
        struct event e = {.kind = EV_FAILED, .a = error};
        snprintf(e.text, sizeof e.text, "%s %s", what, on);
        (void)!send(failure_sink.fd, &e, sizeof e, MSG_NOSIGNAL);
    }
    _exit(125);
}

void fail(const char *what, const char *on) { fail_as(errno, what, on); }

void must(long result, const char *what, const char *on)
{
    if (result < 0)
        fail(what, on);
}

/* write_text writes a file of /proc in one call; negative, with errno, if it cannot. */
int write_text(const char *path, const char *text)
{
    int f = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n = f < 0 ? -1 : write(f, text, strlen(text));
    int error = errno;
    close_all(&f, 1);
    errno = error;
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* write_maps gives the user namespace of a process, by its directory in /proc, the cell's one id and group and no
 * other; negative, with errno, if it cannot. */
int write_maps(const char *proc, const struct request *r, uint32_t uid_out, uint32_t gid_out)
{
    const char *names[] = {"setgroups", "gid_map", "uid_map"};
    char path[64], text[3][64] = {"deny"};
    snprintf(text[1], sizeof text[1], "%u %u 1", r->gid_in, gid_out);
    snprintf(text[2], sizeof text[2], "%u %u 1", r->uid_in, uid_out);
    int result = 0;
    for (unsigned i = 0; i < 3 && result == 0; i++) {
        snprintf(path, sizeof path, "%s/%s", proc, names[i]);
        result = write_text(path, text[i]);
    }
    return result;
}
