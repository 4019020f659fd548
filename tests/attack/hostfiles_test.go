package attack

import (
	"os"
	"path/filepath"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestHostFilesAreOutOfReach: a file of the host that no grant shows is not there,
// by no name; nor is what only root may read, also where root started the cell.
func TestHostFilesAreOutOfReach(t *testing.T) {
	c := celltest.New(t)
	pid, _ := victim(t)
	secret := write(t, filepath.Join(c.Dir, "secret", "key"), "secret", 0o600)
	args := func(pid, dir string) []string {
		return []string{pid, dir, "a private file=" + secret, "the accounts=/etc/passwd", "the passwords=/etc/shadow", "the disk's root=/etc/hosts"}
	}
	attack{
		technique: "hostfiles", outside: args(pid, t.TempDir()), inside: args("1", c.Work),
		root: []string{
			"the passwords", "the passwords through ..", "the passwords through a symlink", "the passwords through the root of a process",
			"open_by_handle_at",
		},
	}.run(t, c)
}

// TestRootOnlyFilesOfAGrantStayClosed: a grant that contains what only root may
// read does not open it, since no agent is root (L17a).
func TestRootOnlyFilesOfAGrantStayClosed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("what an ordinary user grants holds nothing that this user cannot read")
	}
	c := celltest.New(t)
	pid, _ := victim(t)
	c.ReadOnly("/etc")
	c.Spec.Files = nil
	args := func(pid, dir string) []string { return []string{pid, dir, "the passwords=/etc/shadow"} }
	attack{
		technique: "hostfiles", outside: args(pid, t.TempDir()), inside: args("1", c.Work),
	}.run(t, c)
}
