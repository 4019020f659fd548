/* A read-only grant: its contents, its names and its metadata, by path and by descriptor; and a hard link from it
 * into a writable one (L8). */
#include "attack.h"

#include <sys/ioctl.h>
#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/xattr.h>

/* args: the read-only directory, with the files a, b and the directory d; a writable one beside it */
void readonly(char **args, int count)
{
    if (count != 2)
        usage("readonly READONLY WRITABLE");
    const char *a = join(args[0], "a"), *rw = args[1];
    char a_kept[4200];
    snprintf(a_kept, sizeof a_kept, "%s", a);
    a = a_kept;
    writes("open for writing", a);
    report("truncate", truncate(a, 0));
    report("create", put(join(args[0], "new"), "x") ? 0 : -1);
    report("make a directory", mkdir(join(args[0], "new-dir"), 0755));
    report("make a symlink", symlink("x", join(args[0], "new-link")));
    report("rename", rename(join(args[0], "b"), join(args[0], "c")));
    report("rename out", rename(join(args[0], "c"), join(rw, "c")));
    report("rename over", ({ put(join(rw, "over"), "x"); rename(join(rw, "over"), a); }));
    report("hard link out", link(a, join(rw, "linked")));
    report("chmod", chmod(a, 0644));
    report("chmod of a directory", chmod(join(args[0], "d"), 0755));
    report("chown", chown(a, getuid(), getgid()));
    report("set times", utimensat(AT_FDCWD, a, NULL, 0));
    report("set an attribute", setxattr(a, "user.skep", "x", 1, 0));
    report("remove a directory", rmdir(join(args[0], "d")));
    int f = open(a, O_RDONLY | O_CLOEXEC);
    report("chmod by descriptor", fchmod(f, 0644));
    report("set times by descriptor", futimens(f, NULL));
    report("set an attribute by descriptor", fsetxattr(f, "user.skep", "x", 1, 0));
    int flags = 0;
    ioctl(f, FS_IOC_GETFLAGS, &flags);
    report("set flags by descriptor", ioctl(f, FS_IOC_SETFLAGS, &flags));
    report("allocate", ({ int w = open(a, O_RDWR | O_CLOEXEC); w < 0 ? -1 : fallocate(w, 0, 0, 1); }));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", f);
    writes("open again through /proc", path);
    report("chmod through /proc", chmod(path, 0644));
    report("link through /proc", linkat(AT_FDCWD, path, AT_FDCWD, join(rw, "linked-2"), AT_SYMLINK_FOLLOW));
    report("make a temporary file", open(args[0], O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
    close(f);
    report("unlink", unlink(a));
}
