package native_test

import (
	"os"
	"strconv"
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

// A cell that lacks one of them is found out: here the program stands in a
// directory that is granted for writing, and lies there as a file of the agent's own.
func TestMissingWallsAreFound(t *testing.T) {
	c := celltest.New(t, prove.Program, "prove", strconv.Itoa(os.Getpid()))
	c.ReadOnly(celltest.Program(t, "skep-worker"))
	c.Spec.Grants[len(c.Spec.Grants)-1].Path = prove.Program
	c.Writable(c.Make("free"))
	c.Spec.Grants[len(c.Spec.Grants)-1].Path = prove.Dir
	c.Spec.Grants[len(c.Spec.Grants)-1], c.Spec.Grants[len(c.Spec.Grants)-2] = c.Spec.Grants[len(c.Spec.Grants)-2], c.Spec.Grants[len(c.Spec.Grants)-1]
	out, r := c.Run()
	t.Log(out, r)
}
