// Package confine takes from a program of Skep's what its work does not need.
//
// Its laws:
//   - What is given up is given up by all threads and for good, before the first
//     byte of a cell, a person or another program is read.
//   - There is no best effort: what cannot be installed is an error, and the
//     program ends.
//   - The system calls are a list of those that are made; all others fail with
//     EPERM: execve, ptrace, fork, namespaces, io_uring.
package confine

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/landlock-lsm/go-landlock/landlock"

	"skep.dev/skep/internal/sys"
)

// oldestLandlock is the ABI of Linux 5.19 and 6.1.
const oldestLandlock = 2

// Files gives up every file right and every scope (signals and abstract sockets of
// others) that the kernel knows, but for what the rules leave. TCP is left alone:
// a domain can never be widened again, and who is to dial where is decided
// elsewhere. It also keeps the process from being traced. who begins the error.
func Files(who string, leave ...landlock.Rule) error {
	if err := sys.Undumpable(); err != nil {
		return err
	}
	abi, err := sys.LandlockABI()
	if err != nil {
		return fmt.Errorf("%s needs Landlock (Linux 6.1 or later, `landlock` in the lsm list): %w", who, err)
	}
	if abi < oldestLandlock {
		return fmt.Errorf("%s needs Landlock version %d (Linux 6.1 or later); this kernel has %d", who, oldestLandlock, abi)
	}
	known := []landlock.Config{landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6, landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11}
	config := known[min(abi-oldestLandlock, len(known)-1)]
	if err := config.RestrictPaths(leave...); err != nil {
		return fmt.Errorf("give up files: %w", err)
	}
	if err := config.RestrictScoped(); err != nil {
		return fmt.Errorf("give up signals and abstract sockets: %w", err)
	}
	return nil
}

// thread is CLONE_THREAD (clone(2)): a thread, never a process.
const thread = 0x10000

// goCalls are what the Go runtime needs to live: memory, threads, signals to itself,
// time, the poller.
func goCalls() []string {
	calls := []string{
		"brk", "mmap", "munmap", "mprotect", "madvise", "futex", "sched_yield", "sched_getaffinity",
		"gettid", "getpid", "tgkill", "exit", "exit_group", "set_robust_list", "rseq",
		"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall",
		"clock_gettime", "gettimeofday", "clock_nanosleep", "nanosleep", "getrandom",
		"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "eventfd2", "read", "write", "close", "fcntl",
	}
	if runtime.GOARCH == "amd64" {
		calls = append(calls, "epoll_wait", "arch_prctl")
	}
	return calls
}

// Internet is the list of domains for programs that dial.
func Internet() []uint64 { return []uint64{2, 10} } // AF_INET, AF_INET6

// Filter is the allow-list of a program: what the Go runtime needs, the calls of its
// own work, threads, and sockets of the domains. It can be read without installing it.
func Filter(domains []uint64, calls ...string) seccomp.Filter {
	when := func(call string, argument uint32, op seccomp.Operation, value uint64) seccomp.NameWithConditions {
		return seccomp.NameWithConditions{Name: call, Conditions: seccomp.ArgumentConditions{{Argument: argument, Operation: op, Value: value}}}
	}
	some := []seccomp.NameWithConditions{when("clone", 0, seccomp.BitsSet, thread)}
	for _, d := range domains {
		some = append(some, when("socket", 0, seccomp.Equal, d))
	}
	all := append(goCalls(), calls...)
	slices.Sort(all)
	return seccomp.Filter{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: seccomp.Policy{
		DefaultAction: seccomp.ActionErrno,
		Syscalls: []seccomp.SyscallGroup{{
			Action: seccomp.ActionAllow, Names: slices.Compact(all), NamesWithCondtions: some,
		}},
	}}
}

// Calls puts every thread under a filter.
func Calls(f seccomp.Filter) error {
	// no_new_privs is set on one thread and synchronised from it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := seccomp.LoadFilter(f); err != nil {
		return fmt.Errorf("install the system call filter: %w", err)
	}
	return nil
}
