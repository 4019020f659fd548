package setup

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dangerous are the powers over the network and over other processes (G24).
func dangerous() []int {
	return []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_MKNOD, unix.CAP_BPF, unix.CAP_PERFMON}
}

const dropFailed = "CAP_NET_ADMIN could not be dropped, so the agent could change its own network: not starting"

// Drop takes the dangerous capabilities from every thread, the bounding set and the
// ambient set, sets no_new_privs, and is not dumpable afterwards; then it reads all
// of it back (G24).
func Drop() error {
	have, err := capabilities()
	if err != nil {
		return &Fault{dropFailed, err}
	}
	for _, c := range dangerous() {
		if err := prctl(unix.PR_CAPBSET_DROP, uintptr(c)); err != nil && have.has(c) {
			return &Fault{dropFailed, err}
		}
		have = have.without(c)
	}
	if err := prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil {
		return &Fault{dropFailed, err}
	}
	if err := set(have); err != nil {
		return &Fault{dropFailed, err}
	}
	if err := prctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return &Fault{dropFailed, err}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return &Fault{dropFailed, err}
	}
	if err := dropped(); err != nil {
		return &Fault{dropFailed, err}
	}
	return nil
}

// KeepKill leaves CAP_KILL alone: an agent of another user must be ended, and nothing
// else is needed any more (G25).
func KeepKill() error {
	have, err := capabilities()
	if err != nil {
		return err
	}
	return set(have & mask(unix.CAP_KILL))
}

// caps is a capability set.
type caps uint64

func mask(c int) caps             { return 1 << c }
func (s caps) has(c int) bool     { return s&mask(c) != 0 }
func (s caps) without(c int) caps { return s &^ mask(c) }

// has reports whether our effective set has c.
func has(c int) bool {
	have, err := capabilities()
	return err == nil && have.has(c)
}

// capabilities is the permitted set of this thread.
func capabilities() (caps, error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return 0, fmt.Errorf("read the capabilities: %w", err)
	}
	return caps(d[0].Permitted) | caps(d[1].Permitted)<<32, nil
}

// set makes s the permitted and effective set of every thread, and empties the
// inheritable one.
func set(s caps) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	d := [2]unix.CapUserData{{Effective: uint32(s), Permitted: uint32(s)}, {Effective: uint32(s >> 32), Permitted: uint32(s >> 32)}}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&d[0])), 0); errno != 0 {
		return fmt.Errorf("set the capabilities: %w", errno)
	}
	return nil
}

// prctl on every thread.
func prctl(option int, arg uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("prctl %d: %w", option, errno)
	}
	return nil
}

// dropped reads back, of every thread, what must be gone.
func dropped() error {
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(tasks) == 0 {
		return fmt.Errorf("list the threads: %d found, %w", len(tasks), err)
	}
	for _, path := range tasks {
		if err := droppedIn(path); err != nil {
			return err
		}
	}
	return nil
}

func droppedIn(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // the thread has ended
	}
	defer func() { _ = f.Close() }()
	seen := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
			seen++
			bits, err := strconv.ParseUint(value, 16, 64)
			if err != nil {
				return fmt.Errorf("read %s: %w", path, err)
			}
			for _, c := range dangerous() {
				if caps(bits).has(c) {
					return fmt.Errorf("capability %d is still in %s of %s", c, key, path)
				}
			}
		case "NoNewPrivs":
			seen++
			if value != "1" {
				return fmt.Errorf("no_new_privs is not set in %s", path)
			}
		}
	}
	if seen != 6 {
		return fmt.Errorf("%s lacks what was to be read back", path)
	}
	return nil
}
