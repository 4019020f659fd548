package sys

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// Capability numbers of capabilities(7) that Skep names.
const (
	CapDACOverride = unix.CAP_DAC_OVERRIDE
	CapFowner      = unix.CAP_FOWNER
	CapNetAdmin    = unix.CAP_NET_ADMIN
	CapSetgid      = unix.CAP_SETGID
	CapSetuid      = unix.CAP_SETUID
	CapSysAdmin    = unix.CAP_SYS_ADMIN
)

// HasCapability reports whether this thread's effective set holds the capability.
func HasCapability(number int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return data[number/32].Effective&(1<<(number%32)) != 0, nil
}

// BoundCapabilities takes every capability but those listed from the calling
// thread's bounding set, so that a program which the thread executes can never
// have them (capabilities(7)). It cannot be undone: lock the goroutine to its
// thread before, and never unlock it.
func BoundCapabilities(keep ...int) error {
	for number := 0; number <= unix.CAP_LAST_CAP; number++ {
		if slices.Contains(keep, number) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: this kernel has not so many
			return fmt.Errorf("drop capability %d: %w", number, err)
		}
	}
	return nil
}

// AsFileOwner calls f with the ids of another user for access to files, on a thread
// that nothing else uses meanwhile (setfsuid(2)). It needs CAP_SETUID and CAP_SETGID,
// or that these are the caller's own ids.
func AsFileOwner(uid, gid uint32, f func()) error {
	runtime.LockOSThread()
	oldGID, err := unix.SetfsgidRetGid(int(gid))
	if err != nil {
		return fmt.Errorf("take a group for access to files: %w", err)
	}
	oldUID, err := unix.SetfsuidRetUid(int(uid))
	if err != nil {
		return fmt.Errorf("take a user for access to files: %w", err)
	}
	// Not unlocked where they cannot be given back: the thread then ends.
	now, err := unix.SetfsuidRetUid(-1)
	if err != nil || now != int(uid) {
		return errors.Join(fmt.Errorf("take user %d for access to files", uid), err)
	}
	f()
	if _, err := unix.SetfsuidRetUid(oldUID); err != nil {
		return fmt.Errorf("give back a user for access to files: %w", err)
	}
	if _, err := unix.SetfsgidRetGid(oldGID); err != nil {
		return fmt.Errorf("give back a group for access to files: %w", err)
	}
	runtime.UnlockOSThread()
	return nil
}
