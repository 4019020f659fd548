// Package layertest gives the tests of layers a real one: a process in a user
// and a mount namespace of its own that mounts an overlay as a cell has it,
// changes it as an agent would, says what it sees there, and serves the layer.
//
// It works as root and as an ordinary user; Roles runs a test as both.
package layertest

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/layer"
	"skep.dev/skep/internal/sys"
)

// helperVariable tells a re-executed test binary which part it plays.
const helperVariable = "SKEP_LAYERTEST"

// Main must be called by TestMain of a package that uses Start or Confined.
func Main(m *testing.M) {
	switch os.Getenv(helperVariable) {
	case "cell":
		serveCell()
		os.Exit(0)
	case "layer":
		serveConfined()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ordinaryUID is the user that tests fall back to when run as root.
const ordinaryUID = 65533

// Roles runs f as whoever runs the tests, and, where that is root, the same
// test once more in a process of an ordinary user.
func Roles(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		f(t)
		return
	}
	t.Run("root", f)
	t.Run("ordinary", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "skep-ordinary-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.Chown(dir, ordinaryUID, ordinaryUID); err != nil {
			t.Fatal(err)
		}
		binary := filepath.Join(dir, "test")
		copyExecutable(t, binary)
		name := strings.TrimSuffix(t.Name(), "/ordinary")
		cmd := exec.Command(binary, "-test.run", "^"+strings.ReplaceAll(name, "/", "$/^")+"$", "-test.v=true", "-test.timeout=90s")
		cmd.Dir = dir
		cmd.WaitDelay = 5 * time.Second // a helper of its own may outlive it
		cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID},
			Pdeathsig:  syscall.SIGKILL,
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: "+name)) {
			t.Fatalf("as uid %d: %v\n%s", ordinaryUID, err, out)
		}
	})
}

func copyExecutable(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

// Cell is a helper process in its namespaces. It is used by one goroutine.
type Cell struct {
	conn *os.File
	dir  string
}

// Start starts the helper; it ends with the test.
func Start(t testing.TB) *Cell {
	t.Helper()
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	cmd := namespaced("cell", theirs)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a process in its own user namespace: %v", err)
	}
	theirs.Close()
	t.Cleanup(func() {
		ours.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("cell helper: %v", err)
		}
	})
	return &Cell{conn: ours, dir: t.TempDir()}
}

func namespaced(part string, files ...*os.File) *exec.Cmd {
	self, _ := os.Executable()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), helperVariable+"="+part)
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	return cmd
}

// View is a tree: path below its root to state.
type View map[string]snapshot.State

// request is what a test asks of the helper, in gob.
type request struct {
	Base  string // the host tree
	Layer string // holds upper, work and the mount point
	Ops   []Op   // to perform through the overlay
	Mount bool   // else only list Base
	Serve bool   // serve the layer on the passed descriptor
	Reply string // where the view goes
}

type reply struct {
	View   View
	Failed []string // what each op answered, "" for success
	Error  string
}

func (c *Cell) call(q request, files ...*os.File) (reply, error) {
	q.Reply = filepath.Join(c.dir, "reply")
	var packet bytes.Buffer
	if err := gob.NewEncoder(&packet).Encode(q); err != nil {
		return reply{}, err
	}
	if err := sys.SendFDs(c.conn, packet.Bytes(), files...); err != nil {
		return reply{}, err
	}
	if n, _, err := sys.RecvFDs(c.conn, make([]byte, 16), 0); err != nil || n == 0 {
		return reply{}, fmt.Errorf("cell helper ended: %w", err)
	}
	f, err := os.Open(q.Reply)
	if err != nil {
		return reply{}, err
	}
	defer f.Close()
	var r reply
	if err := gob.NewDecoder(f).Decode(&r); err != nil {
		return reply{}, err
	}
	if r.Error != "" {
		return r, fmt.Errorf("cell helper: %s", r.Error)
	}
	return r, nil
}

// Run mounts the layer (made where missing) over base, performs ops there and
// returns what the cell then sees, and what each op answered.
func (c *Cell) Run(base, layerDir string, ops []Op) (View, []string, error) {
	r, err := c.call(request{Base: base, Layer: layerDir, Ops: ops, Mount: true})
	return r.View, r.Failed, err
}

// Look lists a tree with the ids as the cell sees them.
func (c *Cell) Look(dir string) (View, error) {
	r, err := c.call(request{Base: dir})
	return r.View, err
}

// Serve returns a client of the layer; the helper serves it with all powers.
func (c *Cell) Serve(t testing.TB, base, layerDir string) *layer.Client {
	t.Helper()
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	c.ServeOn(t, base, layerDir, theirs)
	return layer.NewClient(ours, 1)
}

// ServeOn serves the layer on conn, of which the helper gets a duplicate.
func (c *Cell) ServeOn(t testing.TB, base, layerDir string, conn *os.File) {
	t.Helper()
	if _, err := c.call(request{Base: base, Layer: layerDir, Serve: true}, conn); err != nil {
		t.Fatal(err)
	}
}

// Confined starts a layer process of its own, under its filter, for one
// directory grant. The client ends with the test.
func Confined(t testing.TB, base, layerDir string) *layer.Client {
	t.Helper()
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	files := []*os.File{theirs}
	for _, dir := range []string{base, filepath.Join(layerDir, "upper"), layerDir} {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	defer sys.CloseAll(files)
	cmd := namespaced("layer", files...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := layer.NewClient(ours, 1)
	t.Cleanup(func() {
		_ = client.Close()
		_ = cmd.Wait()
	})
	return client
}
