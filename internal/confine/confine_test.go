package confine

import (
	"slices"
	"testing"
)

// A filter lets pass what is listed and threads, and sockets of no domain that was
// not named.
func TestFilterIsAList(t *testing.T) {
	f := Filter(nil, "splice", "read")
	group := f.Policy.Syscalls[0]
	for _, call := range []string{"execve", "execveat", "ptrace", "openat", "socket", "unshare", "io_uring_setup", "mount", "clone3", "fork"} {
		if slices.Contains(group.Names, call) {
			t.Errorf("%s is on the list", call)
		}
	}
	if !slices.Contains(group.Names, "splice") || len(group.NamesWithCondtions) != 1 {
		t.Errorf("%+v", group)
	}
	if got := len(Filter(Internet()).Policy.Syscalls[0].NamesWithCondtions); got != 3 {
		t.Errorf("%d conditions with the internet", got)
	}
}
