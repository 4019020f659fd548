package native_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/cell/prove"
)

// proving is a cell that tries its own walls.
func proving(t *testing.T) *celltest.Cell {
	t.Helper()
	c := celltest.New(t, prove.Program, "prove", strconv.Itoa(os.Getpid()))
	c.ReadOnly(celltest.Program(t, "skep-worker"))
	last := &c.Spec.Grants[len(c.Spec.Grants)-1]
	last.Path = prove.Program
	c.Spec.Narrow = append(c.Spec.Narrow, cell.Narrow{Path: prove.Dir, Kind: cell.Hidden})
	return c
}

// Every wall of a cell gives the one answer that proves it (L10).
func TestWallsAreProvedFromInside(t *testing.T) {
	out, r := proving(t).Run()
	if err := prove.Judge(out); err != nil || r.ExitCode != 0 {
		t.Errorf("%v; %+v\n%s", err, r, out)
	}
}

// A cell that lacks walls is found out: here the program lies in a directory that is
// granted for writing, so that mount and Landlock let it do what it likes.
func TestMissingWallsAreFound(t *testing.T) {
	program, err := os.ReadFile(celltest.Program(t, "skep-worker"))
	if err != nil {
		t.Fatal(err)
	}
	c := celltest.New(t, prove.Program, "prove", strconv.Itoa(os.Getpid()))
	free := c.Make("free")
	if err := os.WriteFile(filepath.Join(free, filepath.Base(prove.Program)), program, 0o755); err != nil {
		t.Fatal(err)
	}
	c.Writable(free)
	c.Spec.Grants[len(c.Spec.Grants)-1].Path = prove.Dir
	out, r := c.Run()
	var m *prove.Missing
	if err := prove.Judge(out); !errors.As(err, &m) || m.Wall.Name != "mount flags" || m.Got != "done" || r.ExitCode != 0 {
		t.Errorf("%v; %+v", err, r)
	}
	if !strings.Contains(out, "\nLandlock: done\nseccomp: ENOSYS ENOSYS\n") {
		t.Errorf("%s", out)
	}
}
