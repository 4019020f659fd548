/* mounts.c: the cell's tree (L8): a tmpfs skeleton, the grants, and what stands in their way.
 *
 * Order, and why: first what every cell has, its root, /dev and /proc, which may stand long before anything is asked
 * for (L22); then what is granted, as the worker ordered it. /proc is mounted by PID 1, in its own namespace, before the
 * old root goes (the kernel wants a whole /proc still in view), and that goes as soon as nothing is to be found in it. */
#include "warden.h"

#include <linux/openat2.h>
#include <sys/mount.h>

static int open_beneath(int dir, const char *path, int flags)
{
    while (*path == '/')
        path++;
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, dir, *path ? path : ".", &how, sizeof how);
}

/* find_again opens, in this mount namespace, the object of a descriptor that was opened in the host's: the kernel
 * mounts only what is in one's own namespace. The path is the kernel's own name of the descriptor, and only the very
 * same object is accepted; if it was renamed or replaced meanwhile, the cell is not built. /tmp of the host lies
 * under the cell's root and is entered by its descriptor. */
static int find_again(const struct cell *c, int fd)
{
    char link[64], path[4096];
    struct stat before, now;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    must(n, "name the descriptor of", link);
    path[n] = 0;
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    bool covered = strncmp(path, "/tmp", 4) == 0 && (path[4] == '/' || !path[4]);
    int again = covered ? open_beneath(c->under, path + 4, O_PATH)
                        : (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    must(again, "find again", path);
    must(fstat(fd, &before), "look at", path);
    must(fstat(again, &now), "look at", path);
    if (before.st_dev != now.st_dev || before.st_ino != now.st_ino)
        fail_as(ESTALE, "it was replaced meanwhile:", path);
    return again;
}

/* parent_of opens the directory that the last name of a path is to stand in, and makes what is missing above it. It
 * follows no link: a kept home is what an earlier agent left in it, and the host's tree is still in view. */
static int parent_of(int root, const char *path, const char **name)
{
    char part[264]; /* a name that is too long for the kernel stays so */
    int dir = dup(root);
    for (*name = path + 1; strchr(*name, '/'); *name = strchr(*name, '/') + 1) {
        int above = dir;
        snprintf(part, sizeof part, "%.*s", (int)strcspn(*name, "/"), *name);
        if (mkdirat(above, part, 0755) < 0 && errno != EEXIST)
            fail("make", part);
        must(dir = openat(above, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), "open", part);
        close(above);
    }
    return dir;
}

static void attributes(int mount, uint32_t flags, const char *path)
{
    struct mount_attr a = {.attr_set = MOUNT_ATTR_NOSUID, .propagation = MS_PRIVATE};
    if (!(flags & REC_DEVICES))
        a.attr_set |= MOUNT_ATTR_NODEV;
    if (flags & REC_READONLY)
        a.attr_set |= MOUNT_ATTR_RDONLY;
    if (flags & REC_NOEXEC)
        a.attr_set |= MOUNT_ATTR_NOEXEC;
    must(mount_setattr(mount, "", AT_EMPTY_PATH | AT_RECURSIVE, &a, sizeof a), "restrict", path);
}

/* attach moves a mount onto a path of the cell. The target is opened without following any link: a grant's own
 * content may be hostile. */
static void attach(struct cell *c, int mount, const struct record *r, const char *path)
{
    int target = open_beneath(c->root, path, O_PATH);
    must(target, "open the mount point", path);
    attributes(mount, r->flags, path);
    must(move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH), "mount", path);
    close(target);
    close(mount);
}

static int clone_tree(int fd, const char *path)
{
    int m = open_tree(fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    must(m, "take the tree of", path);
    return m;
}

static int filesystem(const char *type, const char *const *options, const char *path)
{
    int fs = fsopen(type, FSOPEN_CLOEXEC);
    must(fs, "open a filesystem for", path);
    for (; options[0]; options += 2) {
        long r = options[1][0] ? fsconfig(fs, FSCONFIG_SET_STRING, options[0], options[1], 0)
                               : fsconfig(fs, FSCONFIG_SET_FLAG, options[0], NULL, 0);
        if (r < 0)
            fail(options[0], path);
    }
    must(fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0), type, path);
    int m = fsmount(fs, FSMOUNT_CLOEXEC, 0);
    must(m, "make a mount for", path);
    close(fs);
    return m;
}

static int tmpfs(uint64_t size, uint32_t mode, const char *path)
{
    char bytes[24], octal[8];
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)size);
    snprintf(octal, sizeof octal, "%o", mode);
    const char *options[] = {"size", bytes, "mode", octal, "nr_inodes", "65536", NULL};
    return filesystem("tmpfs", options, path);
}

static int fd_of(struct cell *c, const struct record *r, unsigned k)
{
    if (r->fd + k >= c->nfds)
        fail_as(EBADMSG, "find the descriptor of", spec_string(c, r->path));
    return c->fds[r->fd + k];
}

/* overlay makes the mount of a writable grant. The kernel takes layers only from mounts of our own namespace: those
 * that came detached are attached first, where the overlay then covers them for good. */
static int overlay(struct cell *c, const struct record *r, const char *path)
{
    bool ro = r->flags & REC_READONLY, own = r->flags & REC_OWN;
    for (unsigned k = 0; k < (ro || own ? 1 : 2) && (r->flags & REC_DETACHED); k++)
        attach(c, dup(fd_of(c, r, k)), &(const struct record){.flags = 0}, path);
    char lower[96], upper[48], work[48];
    if (ro) {
        /* A second, empty layer, since the kernel wants two: it is there to give every file an inode of its own, by
         * which no socket of the host can be found. */
        snprintf(lower, sizeof lower, "/proc/self/fd/%d:/proc/self/fd/%d/.skep/empty", fd_of(c, r, 0), c->root);
        return filesystem("overlay", (const char *[]){"lowerdir", lower, "userxattr", "", NULL}, path);
    }
    snprintf(lower, sizeof lower, "/proc/self/fd/%d%s", fd_of(c, r, 0), own ? "/lower" : "");
    snprintf(upper, sizeof upper, "/proc/self/fd/%d/upper", fd_of(c, r, own ? 0 : 1));
    snprintf(work, sizeof work, "/proc/self/fd/%d/work", fd_of(c, r, own ? 0 : 1));
    const char *options[] = {"lowerdir", lower, "upperdir", upper, "workdir", work, "userxattr", "", NULL};
    return filesystem("overlay", options, path);
}

static void write_file(struct cell *c, const struct record *r, const char *path, int dir, const char *name)
{
    const char *data = spec_data(c, r->data, r->len);
    int f = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, r->mode);
    must(f, "make the file", path);
    for (uint32_t done = 0; done < r->len;) {
        ssize_t n = write(f, data + done, r->len - done);
        must(n, "write the file", path);
        done += (uint32_t)n;
    }
    close(f);
}

static void hide(struct cell *c, const struct record *r, const char *path)
{
    int target = open_beneath(c->root, path, O_PATH);
    if (target < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
        return; /* not there, or closed to the whole cell as it is to us; a link in its place is neither */
    must(target, "open what is to be hidden:", path);
    struct stat st;
    must(fstat(target, &st), "look at", path);
    close(target);
    struct record ro = *r;
    ro.flags |= REC_READONLY;
    if (S_ISDIR(st.st_mode))
        attach(c, tmpfs(4096, 0555, path), &ro, path);
    else {
        int null = open_beneath(c->root, "dev/null", O_PATH);
        must(null, "open", "/dev/null");
        attach(c, clone_tree(null, path), &ro, path);
        close(null);
    }
}

static void apply(struct cell *c, const struct record *r)
{
    const char *path = spec_string(c, r->path);
    if (path[0] != '/' || strstr(path, "/../"))
        fail_as(EBADMSG, "not an absolute path:", path);
    const char *name = NULL;
    int root = r->flags & REC_OWN ? fd_of(c, r, 0) : c->root;
    int dir = r->op <= OP_SYMLINK ? parent_of(root, path, &name) : -1; /* the three that make something */
    switch (r->op) {
    case OP_DIR:
        if (mkdirat(dir, name, r->mode) < 0 && errno != EEXIST)
            fail("make", path);
        break;
    case OP_FILE: write_file(c, r, path, dir, name); break;
    case OP_SYMLINK: must(symlinkat(spec_string(c, r->data), dir, name), "link", path); break;
    case OP_BIND:
        attach(c, r->flags & REC_DETACHED ? dup(fd_of(c, r, 0)) : clone_tree(fd_of(c, r, 0), path), r, path);
        break;
    case OP_OVERLAY: attach(c, overlay(c, r, path), r, path); break;
    case OP_TMPFS: attach(c, tmpfs(r->size, r->mode, path), r, path); break;
    case OP_HIDE: hide(c, r, path); break;
    case OP_SELF:
    case OP_COVER: {
        int from = open_beneath(c->root, r->op == OP_SELF ? path : spec_string(c, r->data), O_PATH);
        if (from < 0 && (r->flags & REC_OPTIONAL) && (errno == ENOENT || errno == ENOTDIR))
            break;
        must(from, "open what is to stand at", path);
        attach(c, clone_tree(from, path), r, path);
        close(from);
        break;
    }
    case OP_DEVPTS: {
        const char *options[] = {"newinstance", "", "ptmxmode", "0666", "mode", "620", NULL};
        attach(c, filesystem("devpts", options, path), r, path);
        break;
    }
    case OP_PROC: attach(c, filesystem("proc", (const char *[]){NULL}, path), r, path); break;
    default:
        fail_as(EBADMSG, "unknown step for", path);
    }
    if (dir >= 0)
        close(dir);
}

/* apply_all applies the records of a spec. Detached mounts are what they are; all else is found again first. */
static void apply_all(struct cell *c)
{
    bool seen[MAX_FDS] = {false};
    for (uint32_t i = 0; i < c->spec->nrecords; i++) {
        const struct record *r = spec_record(c, i);
        bool overlaid = r->op == OP_OVERLAY && !(r->flags & (REC_READONLY | REC_OWN));
        for (unsigned k = 0; k < (r->op == OP_BIND || r->op == OP_OVERLAY ? 1u + overlaid : 0); k++) {
            int fd = fd_of(c, r, k);
            if ((r->flags & REC_DETACHED) || seen[r->fd + k])
                continue;
            int again = find_again(c, fd);
            must(dup3(again, fd, O_CLOEXEC), "keep the descriptor of", spec_string(c, r->path));
            close(again);
            seen[r->fd + k] = true;
        }
        apply(c, r);
    }
}

static void leave_host(const struct cell *c)
{
    must(fchdir(c->root), "enter the cell's root", "");
    must(syscall(SYS_pivot_root, ".", "."), "change the root", "");
    must(umount2(".", MNT_DETACH), "leave the host's tree", "");
    must(chdir("/"), "enter", "/");
}

/* mounts_begin runs in PID 1, beside the warden, which builds the network. While the host's tree stays in view it is a
 * slave: what the host unmounts goes here too. */
void mounts_begin(struct cell *c)
{
    must(mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL), "separate the mounts of", "/");
    must(c->under = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC), "open", "/tmp");
    int root = tmpfs(16 << 20, 0755, "/");
    attributes(root, 0, "/");
    must(move_mount(root, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH), "mount the cell's root", "");
    close(root);
    must(c->root = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC), "open the cell's root", "");
    apply_all(c);
    if (c->req.flags & DETACHED)
        leave_host(c);
}

/* mounts_complete adds what this cell is granted. */
void mounts_complete(struct cell *c)
{
    apply_all(c);
    if (!(c->req.flags & DETACHED))
        leave_host(c);
    struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY};
    must(mount_setattr(AT_FDCWD, "/", 0, &a, sizeof a), "restrict", "/");
    must(mount_setattr(AT_FDCWD, "/dev", 0, &a, sizeof a), "restrict", "/dev");
}
