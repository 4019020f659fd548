package attack

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/testlab"
)

// TestMountsWithinGrants: what is mounted within a granted tree of the system's is
// covered, and the tree shown all the same (L15). In another grant the cell starts
// without it where root's worker builds it, and else does not start, and says why.
func TestMountsWithinGrants(t *testing.T) { testlab.Test(t, mountsWithin) }

func mountsWithin(t *testing.T, lab *testlab.Lab) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts in trees of the system's")
	}
	for name, worker := range map[string]func(*exec.Cmd){"root's worker": func(*exec.Cmd) {}, "an ordinary user's": ordinary(t)} {
		rootless := !strings.HasPrefix(name, "root")
		t.Run(name, func(t *testing.T) {
			for _, at := range []string{"/usr/games", "/usr/local/share", ""} {
				c := celltest.New(t, "/bin/sh", "-c", `ls "$0" /usr/bin/env`, at)
				if at == "" {
					at = c.Make("work/within")
					c.Spec.Argv[3] = at
				}
				if _, err := os.Stat(at); err != nil {
					t.Skip(err)
				}
				if err := sys.MountTmpfs(at); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(at, "foreign"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				d := celltest.Driver(t, worker)
				if rootless && at != "/usr/games" {
					toldOf(t, d, c, at)
				} else if out, r := c.RunOn(d); r.ExitCode != 0 || strings.Contains(out, "foreign") || !strings.Contains(out, "/usr/bin/env\n") {
					t.Errorf("with a mount at %s: %+v %s", at, r, out)
				}
				if err := sys.UnmountTree(at); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// toldOf expects a start to be refused for what is mounted at a path.
func toldOf(t *testing.T, d cell.Driver, c *celltest.Cell, at string) {
	t.Helper()
	r, err := d.Start(context.Background(), c.Spec)
	if err == nil {
		t.Errorf("with a mount at %s a cell started", at)
		<-r.Done()
	} else if !strings.Contains(err.Error(), at+" is mounted within the granted ") {
		t.Errorf("with a mount at %s: %v", at, err)
	}
}

// ordinary has a worker run as the user that layers belong to.
func ordinary(t *testing.T) func(*exec.Cmd) {
	uid, gid := celltest.Daemon(t)
	return func(worker *exec.Cmd) {
		worker.Args = worker.Args[:len(worker.Args)-2] // --user
		worker.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
}
