package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Undumpable keeps other processes of the same user from tracing this one and
// from reading its memory, and lets no core be written (prctl(2),
// PR_SET_DUMPABLE; setrlimit(2), RLIMIT_CORE).
func Undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process undumpable: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("set the core file limit to zero: %w", err)
	}
	return nil
}

// LandlockABI is the kernel's Landlock version (landlock_create_ruleset(2)); an
// error where it is absent or off.
func LandlockABI() (int, error) {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0, fmt.Errorf("ask for the Landlock version: %w", errno)
	}
	return int(abi), nil
}

// Pollable gives f's descriptor a file whose reads wait in the poller and can
// have deadlines. The old file is closed; on error both are.
func Pollable(f *os.File) (*os.File, error) {
	defer func() { _ = f.Close() }()
	old, err := rawFD(f)
	if err != nil {
		return nil, fmt.Errorf("make %s pollable: %w", f.Name(), err)
	}
	fd, err := unix.FcntlInt(uintptr(old), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("make %s pollable: %w", f.Name(), err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make %s pollable: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
