package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// EmptyRoot moves the calling thread into a mount namespace of its own whose root
// holds one program, as /name, and nothing else; nothing in it can be written
// (pivot_root(2)). What the thread starts from then on is there too. It needs
// CAP_SYS_ADMIN. The goroutine must be locked to its thread, and never unlock it.
func EmptyRoot(program, name string) (err error) {
	const closed = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	fs, root, tree := -1, -1, -1
	defer func() {
		for _, fd := range []int{fs, root, tree} {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}()
	step := func(what string, do func() error) {
		if err != nil {
			return
		}
		if err = do(); err != nil {
			err = fmt.Errorf("make an empty root: %s: %w", what, err)
		}
	}
	step("leave the mount namespace", func() error { return unix.Unshare(unix.CLONE_NEWNS) })
	step("separate the mounts", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") })
	step("open a file system", func() (e error) { fs, e = unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC); return e })
	step("bound it", func() error { return unix.FsconfigSetString(fs, "nr_inodes", "3") })
	step("set its mode", func() error { return unix.FsconfigSetString(fs, "mode", "755") })
	step("make it", func() error { return unix.FsconfigCreate(fs) })
	step("make a mount of it", func() (e error) { root, e = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0); return e })
	step("make the place of the program", func() error {
		file, e := unix.Openat(root, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o555)
		if e != nil {
			return e
		}
		return unix.Close(file) // what is open for writing keeps a mount from being closed
	})
	step("take the program", func() (e error) {
		tree, e = unix.OpenTree(unix.AT_FDCWD, program, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		return e
	})
	step("close the program", func() error {
		return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: closed})
	})
	// To any directory that every host has: only an attached mount can become the root.
	step("attach it", func() error {
		return unix.MoveMount(root, "", unix.AT_FDCWD, "/proc", unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
	step("attach the program", func() error {
		return unix.MoveMount(tree, "", root, name, unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
	step("close it", func() error {
		return unix.MountSetattr(root, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: closed | unix.MOUNT_ATTR_NOEXEC})
	})
	step("enter it", func() error { return unix.Fchdir(root) })
	step("make it the root", func() error { return unix.PivotRoot(".", ".") })
	step("let go of the host's", func() error { return unix.Unmount(".", unix.MNT_DETACH) })
	step("enter the root", func() error { return unix.Chdir("/") })
	return err
}
