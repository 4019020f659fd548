package celltest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/native"
	"skep.dev/skep/internal/sys"
)

// account is the system user that root's worker works for (L6c).
const account = "skep"

// Program returns the path of a built program: in the directory that SKEP_BIN
// names, else in bin/ of the tree. It skips the test where there is none.
func Program(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("SKEP_BIN")
	for up := "."; dir == ""; up = filepath.Join(up, "..") {
		if _, err := os.Stat(filepath.Join(up, "go.mod")); err == nil {
			dir = filepath.Join(up, "bin")
		} else if len(up) > 60 {
			t.Fatal("no go.mod above the test's directory")
		}
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not built: run make build", name)
	}
	return path
}

// Daemon is the numeric user and group that layers belong to on the disk: ours,
// or as root the system user's. It skips the test where root lacks that user.
func Daemon(t testing.TB) (uid, gid int) {
	t.Helper()
	if os.Getuid() != 0 {
		return os.Getuid(), os.Getgid()
	}
	u, err := user.Lookup(account)
	if err != nil {
		t.Skipf("root's cells need the system user %s: run scripts/system-user", account)
	}
	uid, err = strconv.Atoi(u.Uid)
	if err != nil {
		t.Fatal(err)
	}
	gid, err = strconv.Atoi(u.Gid)
	if err != nil {
		t.Fatal(err)
	}
	return uid, gid
}

// Worker starts a worker and returns our end of its socket. Whatever prepare
// changes of the command is the worker's: it must not reach a cell.
func Worker(t testing.TB, prepare ...func(*exec.Cmd)) *os.File {
	t.Helper()
	worker, warden := Program(t, "skep-worker"), Program(t, "skep-warden")
	uid, gid := Daemon(t)
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--warden", warden, "--box", filepath.Join(filepath.Dir(warden), "skep-box")}
	if os.Getuid() == 0 {
		args = append(args, "--user", fmt.Sprintf("%s:%d:%d", account, uid, gid))
	}
	cmd := exec.Command(worker, args...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, os.Stderr
	for _, p := range prepare {
		p(cmd)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	t.Cleanup(func() {
		_ = ours.Close()
		_ = cmd.Wait()
	})
	return ours
}

// Driver returns a native driver on a worker of the test's own.
func Driver(t testing.TB, prepare ...func(*exec.Cmd)) cell.Driver {
	t.Helper()
	return native.New(Worker(t, prepare...))
}
