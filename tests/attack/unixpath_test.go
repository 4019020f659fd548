package attack

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/testlab"
)

// TestUnixSocketsOfTheHost: neither a path nor an abstract name reaches one, not
// even a socket that lies in a directory which the cell is granted (L15).
func TestUnixSocketsOfTheHost(t *testing.T) {
	for name, where := range map[string]func(*celltest.Cell) string{
		"outside of every grant": func(c *celltest.Cell) string { return c.Make("run") },
		"in a writable grant":    func(c *celltest.Cell) string { return c.Work },
		"in a read-only grant": func(c *celltest.Cell) string {
			dir := c.Make("shown")
			c.ReadOnly(dir)
			return dir
		},
		"in a read-only grant of root's": func(c *celltest.Cell) string {
			dir := c.Make("shown")
			if os.Getuid() == 0 {
				_ = os.Chown(dir, 0, 0)
			}
			c.ReadOnly(dir)
			return dir
		},
		"below a narrower rule": func(c *celltest.Cell) string {
			dir := c.Make("work/narrow")
			c.Spec.Narrow = append(c.Spec.Narrow, cell.Narrow{Path: dir, Kind: cell.ReadOnly})
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := celltest.New(t)
			args := sockets(t, where(c))
			pid, _ := victim(t)
			attack{technique: "unixpath", outside: append(args[:4:4], pid), inside: append(args[:4:4], "1")}.run(t, c)
		})
	}
}

// TestUnixSocketsInTreesOfTheSystem: nor does one where services of the machine's
// owner keep theirs: a tree of root's, beside or within those that the packages
// own, what is mounted there, and what is made or mounted while the cell runs.
func TestUnixSocketsInTreesOfTheSystem(t *testing.T) { testlab.Test(t, inTreesOfTheSystem) }

func inTreesOfTheSystem(t *testing.T, lab *testlab.Lab) {
	if out, err := exec.Command("mount", "--make-rshared", "/").CombinedOutput(); err != nil {
		t.Skipf("only root makes such trees: %v %s", err, out)
	}
	for at, grants := range map[string][]string{ // the lab's own filesystem at a place of the host, and what is granted
		"/opt":              {"/opt/tool"},
		"/opt/":             {"/opt", "/opt/tool"},
		"/usr/local":        {},
		"/usr/local/":       {"/usr/local/tool"},
		"/usr/games":        {}, // which is mounted within a grant of the packages'
		"/usr/games/":       {"/usr/games"},
		"/etc/alternatives": {"/etc/alternatives"},
		"/srv":              {"/srv"},
		lab.Dir():           {},
	} {
		for _, later := range []bool{false, true} {
			name := at
			if later {
				name += ", later"
			}
			t.Run(name, func(t *testing.T) { inTree(t, strings.TrimSuffix(at, "/"), grants, later) })
		}
	}
}

// inTree grants what lies on a filesystem that is mounted at a place, with live
// sockets in it, and attacks them. later is when the cell runs already: the sockets
// are made, and where nothing of the filesystem is granted, it is mounted.
func inTree(t *testing.T, at string, grants []string, later bool) {
	if _, err := os.Stat(at); err != nil {
		t.Skip(err)
	}
	tool := filepath.Join(at, "tool")
	mount := func() {
		if err := sys.MountTmpfs(at); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sys.UnmountTree(at) })
		if err := os.Mkdir(tool, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mountLater := later && len(grants) == 0
	if !mountLater {
		mount()
	}
	c := celltest.New(t)
	for _, g := range grants {
		c.ReadOnly(g)
	}
	args := socketNames(tool)
	pid, _ := victim(t)
	a := attack{technique: "unixpath", outside: append(args[:4:4], pid), inside: append(args[:4:4], "1")}
	if !later {
		sockets(t, tool)
		a.run(t, c)
		return
	}
	c.Spec.Argv = append([]string{"/bin/sh", "-c", `read go; exec "$@"`, "sh", bring(t, c), "unixpath"}, a.inside...)
	r := c.Start(celltest.Driver(t))
	if mountLater {
		mount()
	}
	sockets(t, tool)
	for _, o := range a.tryOutside(t) {
		if o.verdict != escaped {
			t.Errorf("%s does not succeed outside, so it proves nothing: %s", o.name, o.why)
		}
	}
	say(t, c, "go\n")
	out := c.Output()
	<-r.Done()
	for _, i := range parse(t, "unixpath in the cell", out) {
		if i.verdict == escaped {
			t.Errorf("%s got through the cell: %s", i.name, i.why)
		}
	}
}

// sockets makes live ones of every kind in a directory, open to all, and one with
// an abstract name. It returns their names.
func sockets(t *testing.T, dir string) []string {
	t.Helper()
	args := socketNames(dir)
	listen(t, "unix", args[0])
	listen(t, "unixpacket", args[1])
	d, err := net.ListenPacket("unixgram", args[2])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	listen(t, "unix", "@"+args[3])
	for _, p := range args[:3] {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return args
}

// socketNames are a stream, a seqpacket and a datagram socket in a directory, and an
// abstract name.
func socketNames(dir string) []string {
	return []string{
		filepath.Join(dir, "s"), filepath.Join(dir, "q"), filepath.Join(dir, "d"),
		fmt.Sprintf("skep-attack-%d%s", os.Getpid(), strings.ReplaceAll(dir, "/", "-")),
	}
}

func listen(t *testing.T, network, address string) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
}
