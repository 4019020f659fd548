package box

import "skep.dev/skep/internal/confine"

// Confine gives up what a box never needs: files, other programs, traces, unix
// sockets of its own.
func Confine() error {
	if err := confine.Files("the box"); err != nil {
		return err
	}
	return confine.Calls(confine.Filter(confine.Internet(),
		"mincore", "getrusage", "prctl", "pipe2",
		// what it was given
		"readv", "writev", "pread64", "fstat", "splice",
		"accept4", "recvfrom", "recvmsg", "sendto", "sendmsg", "shutdown",
		"mlock",      // the values of secrets
		"socketpair", // in front of TLS, which the kernel cannot splice
		"getsockopt", "setsockopt", "getsockname", "getpeername", "connect", "bind",
	))
}
