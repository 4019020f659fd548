package native_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/sys"
)

// A socket of the host that lies in a granted tree leads nowhere (L15): the test
// connects to it outside first.
func TestSocketInAGrantIsDead(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 on this host")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "s")
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
	connect := "import socket,sys; s=socket.socket(socket.AF_UNIX); sys.exit(s.connect_ex(sys.argv[1]) != 0)"
	if err := exec.Command("/usr/bin/python3", "-c", connect, name).Run(); err != nil {
		t.Fatalf("outside: %v", err)
	}
	for _, writable := range []bool{false, true} {
		c := celltest.New(t, "/usr/bin/python3", "-c", connect, name)
		if writable {
			c.Writable(dir)
		} else {
			c.ReadOnly(dir)
		}
		out, result := c.Run()
		if result.ExitCode != 1 || result.Failed != nil {
			t.Errorf("writable %v: %+v %s", writable, result, out)
		}
	}
}

func TestSocketAsAGrantIsRefused(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	object, err := sys.OpenPath(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = object.Close() }()
	c := celltest.New(t, "true")
	c.Spec.Grants = append(c.Spec.Grants, cell.Grant{Path: name, Object: object})
	_, err = celltest.Driver(t).Start(context.Background(), c.Spec)
	if err == nil || !strings.Contains(err.Error(), "neither a directory nor a regular file") {
		t.Errorf("a socket was granted: %v", err)
	}
}
