/* fail.c: how an error leaves a process of the warden, and the small writes to /proc that may fail. */
#include "warden.h"

struct failure_sink failure_sink = {-1, false, -1};

/* fail_as reports what was attempted, on what, and why; then the process ends, and with it the cell. While the cell is
 * only half built there is nobody to tell: the worker reads one byte and builds another, or whoever asks for it hears. */
void fail_as(int error, const char *what, const char *on)
{
    struct request r;
    static int fds[MAX_FDS];
    unsigned came;
    if (failure_sink.slot >= 0)
        (void)!send(failure_sink.slot, "!", 1, MSG_NOSIGNAL);
    if (failure_sink.fd < 0 && receive_request(failure_sink.slot, &r, fds, &came) > 0 && came > 1)
        failure_sink.fd = fds[1];
    struct note n = {.kind = NOTE_FAILED, .a = error};
    struct event e = {.kind = EV_FAILED, .a = error};
    snprintf(n.text, sizeof n.text, "%s %s", what, on);
    snprintf(e.text, sizeof e.text, "%s %s", what, on);
    bool is_note = failure_sink.is_note;
    (void)!send(failure_sink.fd, is_note ? (void *)&n : &e, is_note ? sizeof n : sizeof e, MSG_NOSIGNAL);
    _exit(125);
}

void fail(const char *what, const char *on) { fail_as(errno, what, on); }

void must(long result, const char *what, const char *on)
{
    if (result < 0)
        fail(what, on);
}

/* write_text writes a file of /proc in one call; negative, with errno, if it cannot. */
int write_text(int dir, const char *path, const char *text)
{
    int f = openat(dir, path, O_WRONLY | O_CLOEXEC);
    ssize_t n = f < 0 ? -1 : write(f, text, strlen(text));
    close_all(&f, 1);
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
        result = write_text(AT_FDCWD, path, text[i]);
    }
    return result;
}

/* hold leaves a process these of the first capabilities, and no way to gain any by an exec. */
void hold(uint32_t capabilities)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{capabilities, capabilities, 0}};
    must(syscall(SYS_capset, &head, data), "drop capabilities", "");
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs", "");
}
