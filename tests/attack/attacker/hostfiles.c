/* Files of the host that no grant shows: secrets, other users' homes, the disk's root by any name (L8, L17a). */
#include "attack.h"

#include <dirent.h>

struct handle { struct file_handle head; unsigned char body[8]; };

/* by_handle opens the root of the disk by its inode number, as a container without CAP_DAC_READ_SEARCH must not. */
static void by_handle(const char *mounted)
{
    struct handle h = {.head = {.handle_bytes = 8, .handle_type = 1}, .body = {2}};
    int m = open(mounted, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (m < 0) {
        held("open_by_handle_at", "open %s: %s", mounted, strerror(errno));
        return;
    }
    report("open_by_handle_at", syscall(SYS_open_by_handle_at, m, &h, O_RDONLY));
    close(m);
}

/* args: a process whose root to go through, a directory of the grant, then NAME=PATH of what must not be readable */
void hostfiles(char **args, int count)
{
    if (count < 3)
        usage("hostfiles PID GRANT NAME=PATH...");
    for (int i = 2; i < count; i++) {
        char *path = strchr(args[i], '='), up[4200], name[128];
        if (!path)
            usage("hostfiles PID GRANT NAME=PATH...");
        *path++ = 0;
        reads(args[i], path);
        snprintf(name, sizeof name, "%s through ..", args[i]);
        snprintf(up, sizeof up, "/../../..%s", path);
        reads(name, up);
        snprintf(name, sizeof name, "%s through the root of a process", args[i]);
        snprintf(up, sizeof up, "/proc/%s/root%s", args[0], path);
        reads(name, up);
        char link[4200];
        snprintf(name, sizeof name, "%s through a symlink", args[i]);
        snprintf(link, sizeof link, "%s/link-%d", args[1], i);
        unlink(link);
        if (symlink(path, link) < 0)
            held(name, "make the link: %s", strerror(errno));
        else
            reads(name, link);
    }
    by_handle(args[1]);
}
