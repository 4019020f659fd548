package service

import (
	"fmt"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/landlock-lsm/go-landlock/landlock"

	"skep.dev/skep/internal/sys"
)

// oldestLandlock is the ABI of Linux 5.19 and 6.1; below it skep-model does not
// start.
const oldestLandlock = 2

// Confine gives up, for all threads and for good, what the gateway never needs:
// files but the trusted certificates and the resolver's configuration, other
// programs, traces, unix sockets of its own, signals to others. It is called
// before the first message of skepd. There is no best effort: what cannot be
// installed is an error.
func Confine() error {
	if err := sys.Undumpable(); err != nil {
		return err
	}
	if err := restrictFiles(); err != nil {
		return err
	}
	err := seccomp.LoadFilter(seccomp.Filter{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: filter()})
	if err != nil {
		return fmt.Errorf("install the system call filter: %w", err)
	}
	return nil
}

// restrictFiles handles every file right and scope that the kernel knows and
// grants reading of a closed list. TCP is left alone: dialing is what it is for.
func restrictFiles() error {
	abi, err := sys.LandlockABI()
	if err != nil {
		return fmt.Errorf("skep-model needs Landlock (Linux 6.1 or later, `landlock` in the lsm list): %w", err)
	}
	if abi < oldestLandlock {
		return fmt.Errorf("skep-model needs Landlock version %d (Linux 6.1 or later); this kernel has %d", oldestLandlock, abi)
	}
	known := []landlock.Config{landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6, landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11}
	config := known[min(abi-oldestLandlock, len(known)-1)]
	err = config.RestrictPaths(
		landlock.RODirs("/etc/ssl", "/etc/ca-certificates", "/usr/share/ca-certificates").IgnoreIfMissing(),
		landlock.ROFiles("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf").IgnoreIfMissing(),
	)
	if err != nil {
		return fmt.Errorf("give up files: %w", err)
	}
	if err := config.RestrictScoped(); err != nil {
		return fmt.Errorf("give up signals and abstract sockets: %w", err)
	}
	return nil
}

// filter is the list of system calls for the rest of its life. What is not on it
// fails with EPERM: execve, ptrace, fork, unix sockets, namespaces, io_uring.
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
				// what Landlock leaves of files
				"openat", "newfstatat", "fstat", "getdents64", "lseek", "readlinkat",
				// what it was given, and providers
				"read", "write", "readv", "writev", "pread64", "close", "fcntl",
				"recvfrom", "recvmsg", "sendto", "sendmsg", "sendmmsg", "shutdown",
				"getsockopt", "setsockopt", "getsockname", "getpeername", "connect", "bind",
			},
			NamesWithCondtions: []seccomp.NameWithConditions{
				domain(inet), domain(inet6),
				{Name: "clone", Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.BitsSet, Value: thread}}},
			},
		}},
	}
}
