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

// ClearAmbient empties this thread's ambient capabilities: a program that it
// starts has none, unless it is root. The caller has locked the thread.
func ClearAmbient() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	return nil
}
