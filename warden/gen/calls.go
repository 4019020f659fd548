package main

import "strings"

// CLONE_NEW*: time, mount, cgroup, uts, ipc, user, pid, net (sched.h).
const cloneNew = 0x80 | 0x20000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

// cloneNewAsFlag is cloneNew without CLONE_NEWTIME, whose bit lies in clone's exit signal.
const cloneNewAsFlag = cloneNew &^ 0x80

// cellFilter is the agent's allow-list. With sized, sysinfo and
// sched_getaffinity go to the warden, which answers with the cell's own size.
func cellFilter(sized bool) filter {
	const tiocsti, tioclinux, tiocsetd = 0x5412, 0x541c, 0x5423
	const fSetLease, fSetDeleg = 1024, 1040
	f := filter{
		conditional: []conditional{
			{"socket", socketRule()},
			{"socketpair", onlyOn(0, eAFNOSUPPORT, 1)},
			{"clone", deniedIf(0, cloneNewAsFlag, ePERM)},
			{"unshare", deniedIf(0, cloneNew, ePERM)},
			// A lease holds up whoever opens the file on the host, and so does a delegation.
			{"fcntl", deniedOn(1, ePERM, fSetLease, fSetDeleg)},
			{"ioctl", deniedOn(1, ePERM, tiocsti, tioclinux, tiocsetd)},
			// PER_LINUX, its query, and ADDR_NO_RANDOMIZE for debuggers; other personalities change what calls mean.
			{"personality", onlyOn(0, ePERM, 0, 0x0040000, 0xffffffff)},
		},
		actions: map[string]uint32{},
	}
	for _, name := range strings.Fields(allowed) {
		f.actions[name] = retAllow
	}
	for _, name := range strings.Fields(refused) {
		f.actions[name] = retErrno | ePERM
	}
	if sized {
		f.actions["sysinfo"] = retNotify
		f.actions["sched_getaffinity"] = retNotify
	}
	return f
}

// refused calls get EPERM, which their callers handle as "not here, not you".
// What is in neither list is ENOSYS: clone3 (its flags lie in memory that a
// filter cannot read), io_uring, keyrings, the new mount calls.
const refused = `
	mount umount2 pivot_root chroot setns swapon swapoff reboot syslog acct quotactl
	bpf perf_event_open userfaultfd open_by_handle_at fanotify_init
	kexec_load kexec_file_load init_module finit_module delete_module
	iopl ioperm vhangup settimeofday clock_settime sethostname setdomainname lookup_dcookie modify_ldt
`

const allowed = `
	accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir chmod chown
	clock_adjtime clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat
	dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old
	eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fanotify_mark
	fchdir fchmod fchmodat fchmodat2 fchown fchownat fdatasync fgetxattr file_getattr flistxattr flock fork
	fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat
	getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer get_mempolicy getpeername getpgid getpgrp
	getpid getppid getpriority getrandom getresgid getresuid getrlimit get_robust_list getrusage getsid getsockname
	getsockopt get_thread_area gettid gettimeofday getuid getxattr getxattrat inotify_add_watch inotify_init inotify_init1
	inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents ioprio_get ioprio_set io_setup io_submit kcmp kill
	landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen listxattr listxattrat
	llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack mbind membarrier memfd_create mincore mkdir mkdirat
	mknod mknodat mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink
	mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat open openat openat2
	pause pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl
	pread64 preadv preadv2 prlimit64 process_madvise process_mrelease process_vm_readv process_vm_writev pselect6 ptrace
	pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr
	removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
	rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_getaffinity sched_getattr sched_getparam
	sched_get_priority_max sched_get_priority_min sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr
	sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg
	sendto setfsgid setfsuid setgid setgroups setitimer set_mempolicy set_mempolicy_home_node setpgid setpriority setregid
	setresgid setresuid setreuid setrlimit set_robust_list setsid setsockopt set_thread_area set_tid_address setuid setxattr
	setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs statx symlink symlinkat sync
	sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timerfd_create timerfd_gettime timerfd_settime
	timer_getoverrun timer_gettime timer_settime times tkill truncate umask uname unlink unlinkat uretprobe utime utimensat utimes
	vfork vmsplice wait4 waitid write writev
`
