// Package confined is what the process that serves a layer gives up before it does. It
// stands apart from the client, which `skep` links and has nothing to give up.
//
// Its law: the process can make the system calls of its list and no others.
package confined

import (
	"fmt"

	"github.com/elastic/go-seccomp-bpf"

	"skep.dev/skep/internal/confine"
)

// Filter is the allow-list of the layer process, to be read without installing
// it: read two trees, answer on a socket that exists, remove files. No openat:
// nothing is opened by a path from the root any more.
func Filter() seccomp.Filter {
	return confine.Filter(nil,
		"openat2", "pread64", "lseek", "getdents64", "fstat", "newfstatat", "readlinkat",
		"flistxattr", "fgetxattr", "unlinkat", "renameat2", "fchmodat", "fchmodat2",
		"sendmsg", "recvmsg",
	)
}

// Confine puts every thread of this process under Filter, for good. The
// process must hold only the descriptors that it will serve.
func Confine() error {
	if err := confine.Calls(Filter()); err != nil {
		return fmt.Errorf("confine layer process: %w", err)
	}
	return nil
}
