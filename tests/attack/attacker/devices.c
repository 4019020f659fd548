/* Devices: made by mknod, or found (L7). */
#include "attack.h"

#include <sys/sysmacros.h>

static void make(const char *attempt, const char *dir, mode_t type, unsigned major, unsigned minor)
{
    const char *path = join(dir, "node");
    unlink(path);
    if (mknod(path, type | 0666, makedev(major, minor)) < 0) {
        held(attempt, "mknod: %s", strerror(errno));
        return;
    }
    int f = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (f < 0 && errno != ENXIO && errno != ENODEV)
        held(attempt, "open: %s", strerror(errno));
    else
        escaped(attempt, "the node leads to the device");
    if (f >= 0)
        close(f);
    unlink(path);
}

/* args: a directory, then devices that must not open */
void devices(char **args, int count)
{
    if (count < 1)
        usage("devices DIR PATH...");
    make("mknod of a character device", args[0], S_IFCHR, 1, 5);
    make("mknod of the kernel's memory", args[0], S_IFCHR, 1, 1);
    make("mknod of a block device", args[0], S_IFBLK, 7, 0);
    /* A whiteout, made by hand in the layer, would remove a file of the tree below it without a right to. */
    unlink(join(args[0], "whiteout"));
    report("mknod of a whiteout", mknod(join(args[0], "whiteout"), S_IFCHR, makedev(0, 0)));
    unlink(join(args[0], "whiteout"));
    /* The harmless ones are the host's own nodes: their metadata is not the agent's to change. */
    report("set times of a device", utimensat(AT_FDCWD, "/dev/null", NULL, 0));
    int f = open("/dev/zero", O_RDWR | O_CLOEXEC);
    report("set times of a device by descriptor", futimens(f, NULL));
    close(f);
    for (int i = 1; i < count; i++) {
        char name[256];
        snprintf(name, sizeof name, "open %s", args[i]);
        int f = open(args[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        report(name, f);
        if (f >= 0)
            close(f);
    }
}
