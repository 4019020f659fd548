package layer

import (
	"fmt"
	"runtime"

	"github.com/elastic/go-seccomp-bpf"
)

// cloneThread is CLONE_THREAD (clone(2)): a thread, never a process.
const cloneThread = 0x10000

// served are the system calls of the work itself: read two trees, answer on a
// socket that exists, remove files.
func served() []string {
	return []string{
		"openat2", "read", "pread64", "close", "lseek", "getdents64", "fstat", "newfstatat", "readlinkat",
		"flistxattr", "fgetxattr", "unlinkat", "renameat2", "fchmodat", "fchmodat2",
		"sendmsg", "recvmsg", "fcntl",
	}
}

// runtimeCalls are what the Go runtime needs to live: memory, its threads' own
// signals and sleeps, the poller. No openat: nothing is opened by a path from
// the root any more.
func runtimeCalls() []string {
	return []string{
		"mmap", "munmap", "madvise", "mprotect", "brk", "futex", "sched_yield", "sched_getaffinity",
		"nanosleep", "clock_nanosleep", "clock_gettime", "gettimeofday", "getrandom", "gettid", "getpid", "tgkill",
		"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", "set_robust_list", "rseq",
		"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "eventfd2", "write", "exit", "exit_group",
	}
}

// Filter is the allow-list of the layer process, to be read without installing
// it. What is not listed answers EPERM.
func Filter() seccomp.Filter {
	names := append(served(), runtimeCalls()...)
	if runtime.GOARCH == "amd64" {
		names = append(names, "epoll_wait", "arch_prctl")
	}
	return seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno,
			Syscalls: []seccomp.SyscallGroup{{
				Action: seccomp.ActionAllow,
				Names:  names,
				NamesWithCondtions: []seccomp.NameWithConditions{{
					Name: "clone",
					Conditions: []seccomp.Condition{
						{Argument: 0, Operation: seccomp.BitsSet, Value: cloneThread},
					},
				}},
			}},
		},
	}
}

// Confine puts every thread of this process under Filter, for good. The
// process must hold only the descriptors that it will serve.
func Confine() error {
	// no_new_privs is set on one thread and synchronised from it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := seccomp.LoadFilter(Filter()); err != nil {
		return fmt.Errorf("confine layer process: %w", err)
	}
	return nil
}
