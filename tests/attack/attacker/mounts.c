/* The mount table: new mounts, moved ones, others' attributes, by the old calls and the new (L8, L11). */
#include "attack.h"

#include <linux/mount.h>
#include <sys/mount.h>

static long pivot(const char *root)
{
    return syscall(SYS_pivot_root, root, root);
}

/* args: a directory that may be mounted over, and a mount point that is read-only */
void mounts(char **args, int count)
{
    if (count != 2)
        usage("mounts DIR READONLY");
    const char *dir = args[0], *ro = args[1];
    if (report("mount tmpfs", mount("none", dir, "tmpfs", 0, NULL)))
        umount2(dir, MNT_DETACH);
    if (report("mount proc", mount("none", dir, "proc", 0, NULL)))
        umount2(dir, MNT_DETACH);
    if (report("bind mount", mount(ro, dir, NULL, MS_BIND, NULL)))
        umount2(dir, MNT_DETACH);
    report("remount writable", mount(NULL, ro, NULL, MS_REMOUNT | MS_BIND, NULL));
    report("unmount", umount2(ro, MNT_DETACH));
    report("change propagation", mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL));
    int fs = (int)syscall(SYS_fsopen, "tmpfs", 0);
    report("fsopen", fs);
    long config = fs < 0 ? fs : syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
    int m = config < 0 ? (int)config : (int)syscall(SYS_fsmount, fs, 0, 0);
    report("fsmount", m);
    if (report("move_mount", syscall(SYS_move_mount, m < 0 ? AT_FDCWD : m, "", AT_FDCWD, dir, MOVE_MOUNT_F_EMPTY_PATH)))
        umount2(dir, MNT_DETACH);
    report("fspick", syscall(SYS_fspick, AT_FDCWD, "/", 0));
    report("open_tree", syscall(SYS_open_tree, AT_FDCWD, dir, OPEN_TREE_CLONE | AT_RECURSIVE));
    struct mount_attr clear = {.attr_clr = MOUNT_ATTR_NODEV}, set = {.attr_set = MOUNT_ATTR_NOSYMFOLLOW};
    mount("none", dir, "tmpfs", 0, NULL);
    report("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, dir, 0, &set, sizeof set));
    set.attr_set = 0;
    (void)clear;
    umount2(dir, MNT_DETACH);
    report("chroot", ({
        fflush(stdout);
        pid_t child = fork();
        int status;
        if (child == 0)
            _exit(chroot(dir) < 0 ? errno : 0);
        waitpid(child, &status, 0);
        errno = WEXITSTATUS(status);
        errno ? -1 : 0;
    }));
    reached("pivot_root", pivot(dir));
    reached("swapon", syscall(SYS_swapon, dir, 0));
    reached("quotactl", syscall(SYS_quotactl, 0, dir, 0, NULL));
}
