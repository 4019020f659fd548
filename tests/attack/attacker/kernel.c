/* Calls with which others have left their sandboxes: their use is refused, whatever the arguments (L11). */
#include "attack.h"

#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <sys/fanotify.h>
#include <time.h>

void kernel(char **args, int count)
{
    (void)args, (void)count;
    struct io_uring_params ring = {0};
    report("io_uring_setup", syscall(SYS_io_uring_setup, 1, &ring));
    reached("io_uring_enter", syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0));
    reached("io_uring_register", syscall(SYS_io_uring_register, -1, 0, NULL, 0));

    union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    report("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map));

    struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event, .config = PERF_COUNT_SW_TASK_CLOCK,
                                    .exclude_kernel = 1, .exclude_hv = 1};
    report("perf_event_open", syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
    report("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));

    report("keyctl", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1));
    report("add_key", syscall(SYS_add_key, "user", "skep-attack", "x", 1, KEY_SPEC_PROCESS_KEYRING));
    errno = 0;
    long found = syscall(SYS_request_key, "user", "skep-no-such-key", NULL, 0);
    if (found < 0 && errno != ENOKEY)
        held("request_key", "%s", strerror(errno));
    else
        escaped("request_key", "the kernel looked for it");

    report("fanotify_init", syscall(SYS_fanotify_init, FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY));
    reached("syslog", syscall(SYS_syslog, 10, NULL, 0));
    reached("kexec_load", syscall(SYS_kexec_load, 0, 1000, NULL, 0));
    reached("init_module", syscall(SYS_init_module, NULL, 0, ""));
    reached("finit_module", syscall(SYS_finit_module, -1, "", 0));
    reached("delete_module", syscall(SYS_delete_module, "skep_no_such_module", O_NONBLOCK));
    reached("reboot", syscall(SYS_reboot, 0, 0, 0, NULL));
    reached("clock_settime", syscall(SYS_clock_settime, CLOCK_REALTIME, NULL));
    reached("sethostname", syscall(SYS_sethostname, NULL, 65));
    reached("acct", syscall(SYS_acct, "/no-such-file"));
    reached("iopl", syscall(SYS_iopl, 4));
    reached("modify_ldt", syscall(SYS_modify_ldt, 0, NULL, 0));
}
