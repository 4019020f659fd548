/* fail.c: how an error leaves a process of the warden. */
#include "warden.h"

struct failure_sink failure_sink = {-1, false};

/* fail reports what was attempted, on what, and errno; then the process ends, and with it the cell. */
void fail(const char *what, const char *on)
{
    int error = errno;
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
