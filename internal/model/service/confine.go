package service

import (
	"github.com/landlock-lsm/go-landlock/landlock"

	"skep.dev/skep/internal/confine"
)

// Confine gives up what the gateway never needs: files but the trusted
// certificates and the resolver's configuration, other programs, traces, unix
// sockets of its own, signals to others. It is called before the first message of
// skepd.
func Confine() error {
	err := confine.Files("skep-model",
		landlock.RODirs("/etc/ssl", "/etc/ca-certificates", "/usr/share/ca-certificates").IgnoreIfMissing(),
		landlock.ROFiles("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf").IgnoreIfMissing(),
	)
	if err != nil {
		return err
	}
	return confine.Calls(confine.Filter(confine.Internet(),
		"mincore", "getrusage", "prctl", "pipe2",
		// what Landlock leaves of files
		"openat", "newfstatat", "fstat", "getdents64", "lseek", "readlinkat",
		// what it was given, and providers
		"readv", "writev", "pread64", "recvfrom", "recvmsg", "sendto", "sendmsg", "sendmmsg", "shutdown",
		"getsockopt", "setsockopt", "getsockname", "getpeername", "connect", "bind",
	))
}
