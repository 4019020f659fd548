package attack

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/testlab"
)

// TestMountsStandAsTheyAre: the tree of a cell is what it was built to be (L8, L11).
func TestMountsStandAsTheyAre(t *testing.T) {
	c := celltest.New(t)
	attack{
		technique: "mounts", own: true, outside: []string{t.TempDir(), "/proc"}, inside: []string{c.Work, "/usr"},
		root: []string{"swapon", "quotactl", "remount writable", "unmount"},
	}.run(t, c)
}

// TestMountsOfACellStayInIt: where the host's mounts are shared with every namespace,
// as systemd makes them, none of a cell's shows outside (L9), nor one that the host
// makes later in the cell (L8).
func TestMountsOfACellStayInIt(t *testing.T) { testlab.Test(t, mountsStayIn) }

func mountsStayIn(t *testing.T, lab *testlab.Lab) {
	if out, err := exec.Command("mount", "--make-rshared", "/").CombinedOutput(); err != nil {
		t.Skipf("only root shares mounts: %v %s", err, out)
	}
	late := filepath.Join(lab.Dir(), "late")
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	table := func() string {
		text, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := table()
	c := celltest.New(t, "/bin/sh", "-c", "read go; cat /proc/self/mountinfo")
	c.ReadOnly("/srv")
	r := c.Start(celltest.Driver(t))
	if during := table(); during != before {
		t.Errorf("mounts of the cell show outside:\n%s\nbefore:\n%s", during, before)
	}
	for _, at := range []string{late, "/usr/games", "/srv"} {
		if err := sys.MountTmpfs(at); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sys.UnmountTree(at) })
	}
	say(t, c, "go\n")
	out := c.Output()
	<-r.Done()
	if strings.Contains(out, "/usr/games") || !strings.Contains(out, " /usr ") {
		t.Errorf("a later mount of the host shows in the cell:\n%s", out)
	}
}

// say sends the agent a line.
func say(t *testing.T, c *celltest.Cell, line string) {
	t.Helper()
	frame := binary.LittleEndian.AppendUint32([]byte{0}, uint32(len(line)))
	if _, err := c.Client.Write(append(frame, line...)); err != nil {
		t.Fatal(err)
	}
}
