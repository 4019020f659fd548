package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// BindFile mounts one file over another, in the mount namespace of the caller,
// who must own it; for labs that show a program another resolv.conf.
func BindFile(from, over string) error {
	if err := unix.Mount(from, over, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s over %s: %w", from, over, err)
	}
	return nil
}

// BindTree mounts a directory and all that is mounted below it at another.
func BindTree(from, at string) error {
	if err := unix.Mount(from, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, at, err)
	}
	return nil
}

// MountTmpfs mounts an empty filesystem that belongs to the caller, mode 0755.
func MountTmpfs(at string) error {
	if err := unix.Mount("none", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs at %s: %w", at, err)
	}
	return nil
}

// MountSmallTmpfs is MountTmpfs with room for size bytes and no more.
func MountSmallTmpfs(at string, size int64) error {
	if err := unix.Mount("none", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=755,size=%d", size)); err != nil {
		return fmt.Errorf("mount a tmpfs of %d bytes at %s: %w", size, at, err)
	}
	return nil
}

// ChangeRoot makes a mount point the root of this mount namespace; the old root
// is gone from it. The working directory is the new root.
func ChangeRoot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter %s: %w", root, err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root to %s: %w", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return unix.Chdir("/")
}

// ClearAmbient empties this thread's ambient capabilities: a program that it
// starts has none, unless it is root. The caller has locked the thread.
func ClearAmbient() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	return nil
}
