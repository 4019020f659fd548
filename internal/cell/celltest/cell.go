package celltest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/sys"
)

// Cell is a cell that is about to be built, and what the test holds of it.
type Cell struct {
	Spec *cell.Spec
	// Dir is the test's own directory, which the cell does not see; Work, in it, is
	// the one writable grant.
	Dir, Work string
	// Client is the attached client's socket; Box the far end of the warden's to its box.
	Client net.Conn
	Box    *os.File

	t      testing.TB
	layers int
}

// gateReady and gateSize are GATE_READY and the size of struct gate of warden/warden.h.
const (
	gateReady = 4
	gateSize  = 56
)

// New prepares a cell that runs argv in its home: the system's programs and
// libraries read-only, an empty writable directory, a home and a /tmp.
func New(t testing.TB, argv ...string) *Cell {
	t.Helper()
	c := &Cell{t: t, Dir: t.TempDir()}
	// A test may run as root, its cells as somebody else.
	for dir := c.Dir; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Work = c.Make("work")
	log, err := os.OpenFile(filepath.Join(c.Dir, "log"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	control, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(c.Dir, "w"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	listening, err := control.File()
	if err != nil {
		t.Fatal(err)
	}
	boxEnd, wardenEnd, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	stdioEnd, clientEnd, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	c.Box = boxEnd
	// The warden lets no agent run before its box has answered (B163): the message is there before it asks.
	message := make([]byte, gateSize)
	binary.NativeEndian.PutUint32(message, gateReady)
	if err := sys.SendFDs(boxEnd, message); err != nil {
		t.Fatal(err)
	}
	if c.Client, err = net.FileConn(clientEnd); err != nil {
		t.Fatal(err)
	}
	_ = clientEnd.Close()
	c.Spec = &cell.Spec{
		ID: "abcdefghijklmnopqrstuvwxyz", Hostname: "cell", Argv: argv,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent"}, Dir: "/home/agent",
		Home: c.open(c.layer("home")), HomePath: "/home/agent", Tmp: c.open(c.layer("tmp")), Size: c.open(c.layer("size")),
		ShmSize: 1 << 20, Box: wardenEnd, Control: listening, Log: log, Stdio: stdioEnd,
		Files: []cell.File{{Path: "/etc/hostname", Content: []byte("cell\n")}},
	}
	for _, p := range []string{"/usr", "/bin", "/lib", "/lib64"} {
		if _, err := os.Lstat(p); err == nil {
			c.ReadOnly(p)
		}
	}
	c.Writable(c.Work)
	t.Cleanup(func() {
		for _, f := range []*os.File{log, listening, boxEnd, wardenEnd, stdioEnd} {
			_ = f.Close()
		}
		_ = c.Client.Close()
		_ = control.Close()
	})
	return c
}

// Make makes a directory below Dir and returns its path.
func (c *Cell) Make(name string) string {
	c.t.Helper()
	path := filepath.Join(c.Dir, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// layer makes a directory that belongs to the daemon's user on the disk.
func (c *Cell) layer(name string) string {
	c.t.Helper()
	path := c.Make(name)
	uid, gid := Daemon(c.t)
	if err := os.Chown(path, uid, gid); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (c *Cell) open(path string) *os.File {
	c.t.Helper()
	f, err := sys.OpenPath(path)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = f.Close() })
	return f
}

// ReadOnly grants a path of the host for reading.
func (c *Cell) ReadOnly(path string) {
	c.t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		c.t.Fatal(err)
	}
	c.Spec.Grants = append(c.Spec.Grants, cell.Grant{Path: path, Object: c.open(path), Dir: info.IsDir()})
}

// Writable grants a directory of the host for writing and returns where its
// layer stands: upper below it holds what the cell wrote.
func (c *Cell) Writable(path string) (layer string) {
	c.t.Helper()
	name := filepath.Join("layers", string(rune('a'+c.layers)))
	c.layers++
	layer = c.layer(name)
	c.layer(name + "/upper")
	c.layer(name + "/work")
	// overlayfs leaves a directory that nobody may enter, which the test's own clean-up cannot remove.
	c.t.Cleanup(func() { _ = os.Chmod(filepath.Join(layer, "work", "work"), 0o700) })
	c.Spec.Grants = append(c.Spec.Grants, cell.Grant{
		Path: path, Object: c.open(path), Dir: true, Writable: true, Layer: c.open(layer),
	})
	return layer
}

// WritableFile grants a single file of the host for writing, with a copy of it as the
// daemon makes one, and returns where its layer stands. Files of one directory share it.
func (c *Cell) WritableFile(path string) (layer string) {
	c.t.Helper()
	g := cell.Grant{Path: path, Object: c.open(path), Writable: true}
	for _, other := range c.Spec.Grants {
		if !other.Dir && other.Writable && filepath.Dir(other.Path) == filepath.Dir(path) {
			g.Layer = other.Layer
		}
	}
	if g.Layer == nil {
		c.layer(filepath.Join("layers", filepath.Base(c.Writable(path)), "lower"))
		last := len(c.Spec.Grants) - 1
		g.Layer, c.Spec.Grants = c.Spec.Grants[last].Layer, c.Spec.Grants[:last]
	}
	c.Spec.Grants = append(c.Spec.Grants, g)
	content, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	uid, gid := Daemon(c.t)
	copied := filepath.Join(g.Layer.Name(), "lower", filepath.Base(path))
	if err := errors.Join(os.WriteFile(copied, content, 0o644), os.Chown(copied, uid, gid)); err != nil {
		c.t.Fatal(err)
	}
	return g.Layer.Name()
}

// Layer is where the layer of Work stands.
func (c *Cell) Layer() string { return filepath.Join(c.Dir, "layers", "a") }

// Run builds the cell on a worker of its own, waits for its end, and returns
// what the agent wrote.
func (c *Cell) Run() (string, cell.Result) {
	c.t.Helper()
	return c.RunOn(Driver(c.t))
}

// RunOn is Run on a driver of the test's.
func (c *Cell) RunOn(d cell.Driver) (string, cell.Result) {
	c.t.Helper()
	r := c.Start(d)
	out := c.Output()
	<-r.Done()
	return out, r.Result()
}

// Start builds the cell.
func (c *Cell) Start(d cell.Driver) cell.Running {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := d.Start(ctx, c.Spec)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = c.Spec.Stdio.Close() // the warden's copy alone keeps our end from reading the end
	return r
}

// Output reads what the agent writes until the warden closes the connection.
func (c *Cell) Output() string {
	c.t.Helper()
	_ = c.Client.SetReadDeadline(time.Now().Add(60 * time.Second))
	var out strings.Builder
	for {
		head := make([]byte, 5) // type, length (L18b)
		if _, err := io.ReadFull(c.Client, head); err != nil {
			if os.IsTimeout(err) {
				c.t.Errorf("the cell has not ended in a minute; so far it wrote %q", out.String())
			}
			return out.String()
		}
		n := int(head[1]) | int(head[2])<<8 | int(head[3])<<16
		body := make([]byte, n)
		if _, err := io.ReadFull(c.Client, body); err != nil {
			c.t.Error(err)
			return out.String()
		}
		out.Write(body)
	}
}
