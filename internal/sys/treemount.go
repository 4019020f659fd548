package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MountOverlay mounts an overlay of one lower directory at target, as a cell
// has it: option userxattr, so that it works in a user namespace. The paths
// must hold no comma, colon or backslash; it is for tests and small tools, the
// worker mounts on descriptors.
func MountOverlay(target, lower, upper, work string) error {
	options := "userxattr,lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", target, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay of %s at %s: %w", lower, target, err)
	}
	return nil
}

// UnmountTree unmounts what is mounted at target, at once or when it is free.
func UnmountTree(target string) error {
	if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}

// fsImmutable is FS_IMMUTABLE_FL of linux/fs.h.
const fsImmutable = 0x10

// SetImmutable sets or clears the immutable flag of a file (chattr(1)), which
// needs privilege; for tests of what cannot be replaced.
func SetImmutable(path string, on bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return at(f, "set flags", path, func(fd int) error {
		flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		flags &^= fsImmutable
		if on {
			flags |= fsImmutable
		}
		return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags)
	})
}
