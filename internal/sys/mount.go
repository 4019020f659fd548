package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// DetachedMount returns a mount of the object of f, with what is mounted below
// it, that is attached nowhere (open_tree(2)). It needs CAP_SYS_ADMIN over the
// mount namespace that f was opened in. The caller owns it.
func DetachedMount(f *os.File) (*os.File, error) {
	fd, err := unix.OpenTree(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("take the tree of %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// Idmap shows the files of a detached mount by the id map of a user namespace
// (mount_setattr(2)): an id on the disk is looked up on the left of the map.
func Idmap(mount, userns *os.File) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
	if err := unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("map the ids of %s: %w", mount.Name(), err)
	}
	return nil
}
