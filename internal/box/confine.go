package box

import (
	"fmt"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/landlock-lsm/go-landlock/landlock"

	"skep.dev/skep/internal/sys"
)

// oldestLandlock is the ABI of Linux 6.1 and 5.19; below it the box does not start.
const oldestLandlock = 2

// Confine gives up, for all threads and for good, what a box never needs: files,
// other programs, traces, unix sockets of its own. It is called before anything
// of a cell, a person or the daemon is read. There is no best effort: what
// cannot be installed is an error.
func Confine() error {
	if err := sys.Undumpable(); err != nil {
		return err
	}
	if err := landlockAll(); err != nil {
		return err
	}
	// Landlock has set no_new_privs on all threads; the filter goes to all, too.
	err := seccomp.LoadFilter(seccomp.Filter{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: filter()})
	if err != nil {
		return fmt.Errorf("install the system call filter: %w", err)
	}
	return nil
}

// landlockAll handles every file right and every scope that the kernel knows,
// and grants none. TCP is left alone: dialing is what the box is for.
func landlockAll() error {
	abi, err := sys.LandlockABI()
	if err != nil {
		return fmt.Errorf("the box needs Landlock (Linux 6.1 or later, `landlock` in the lsm list): %w", err)
	}
	if abi < oldestLandlock {
		return fmt.Errorf("the box needs Landlock version %d (Linux 6.1 or later); this kernel has %d", oldestLandlock, abi)
	}
	known := []landlock.Config{landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6, landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11}
	config := known[min(abi-oldestLandlock, len(known)-1)]
	if err := config.RestrictPaths(); err != nil {
		return fmt.Errorf("give up all files: %w", err)
	}
	if err := config.RestrictScoped(); err != nil {
		return fmt.Errorf("give up signals and abstract sockets: %w", err)
	}
	return nil
}

// filter is the box's list of system calls for its lifetime. What is not on it
// fails with EPERM: execve, ptrace, open, creat, unix sockets, namespaces, io_uring.
func filter() seccomp.Policy {
	const (
		inet, inet6 = 2, 10   // AF_INET, AF_INET6
		thread      = 0x10000 // CLONE_THREAD
	)
	domain := func(d uint64) seccomp.NameWithConditions {
		return seccomp.NameWithConditions{Name: "socket", Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.Equal, Value: d}}}
	}
	return seccomp.Policy{
		DefaultAction: seccomp.ActionErrno,
		Syscalls: []seccomp.SyscallGroup{{
			Action: seccomp.ActionAllow,
			Names: []string{
				// the Go runtime: memory, threads, signals to itself, time, polling
				"brk", "mmap", "munmap", "mprotect", "madvise", "mincore",
				"futex", "sched_yield", "sched_getaffinity", "gettid", "getpid", "tgkill", "exit", "exit_group",
				"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall",
				"clock_gettime", "clock_nanosleep", "nanosleep", "getrandom", "getrusage", "prctl",
				"epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2", "pipe2",
				// what it was given
				"read", "write", "readv", "writev", "pread64", "close", "fcntl", "fstat", "splice",
				"accept4", "recvfrom", "recvmsg", "sendto", "sendmsg", "shutdown",
				"getsockopt", "setsockopt", "getsockname", "getpeername", "connect", "bind",
			},
			NamesWithCondtions: []seccomp.NameWithConditions{
				domain(inet), domain(inet6),
				{Name: "clone", Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.BitsSet, Value: thread}}},
			},
		}},
	}
}
