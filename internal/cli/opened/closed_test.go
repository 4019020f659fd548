package opened

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skep.dev/skep/internal/profile/pathplan"
)

func TestPasses(t *testing.T) {
	for _, c := range []struct {
		mode         os.FileMode
		owner, group bool
		want         bool
	}{
		{0o700, true, true, true}, {0o700, false, true, false}, {0o700, false, false, false},
		{0o710, false, true, true}, {0o701, false, false, true}, {0o701, false, true, false}, {0o077, true, true, false},
	} {
		if got := passes(c.mode, c.owner, c.group); got != c.want {
			t.Errorf("%04o, owner %v, group %v: %v", c.mode, c.owner, c.group, got)
		}
	}
}

// The directory that is closed is named, not what lies below it or the program.
func TestClosedDirectoryIsNamed(t *testing.T) {
	root := t.TempDir()
	closed := filepath.Join(root, "closed")
	deep := filepath.Join(closed, "deep", "er")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	plan := &pathplan.Plan{Mounts: []pathplan.Mount{
		{Kind: pathplan.Grant, Path: "/usr", Dir: true}, {Kind: pathplan.Grant, Path: root, Dir: true, Writable: true},
		{Kind: pathplan.Hide, Path: filepath.Join(root, "not", "there"), Dir: true},
	}}
	if err := Passable(plan, deep); err != nil {
		t.Fatal(err)
	}
	mode := os.FileMode(0o700)
	if os.Getuid() == 0 {
		if err := os.Chown(closed, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	} else {
		mode = 0o600 // closed to its owner, which we are
		t.Cleanup(func() { _ = os.Chmod(closed, 0o700) })
	}
	if err := os.Chmod(closed, mode); err != nil {
		t.Fatal(err)
	}
	err := Passable(plan, deep)
	var c *ClosedError
	if !errors.As(err, &c) || c.Dir != closed || c.Target != deep || c.Grant != root {
		t.Fatalf("%v", err)
	}
	if !strings.Contains(err.Error(), closed+" (mode 0"+map[bool]string{true: "700", false: "600"}[mode == 0o700]) {
		t.Error(err)
	}
	if err := Passable(plan, closed); !errors.As(err, &c) || c.Dir != closed {
		t.Errorf("to begin in it: %v", err)
	}
	if err := Passable(plan, root); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Passable(plan, root); err != nil {
		t.Errorf("a writable grant that is its owner's alone: %v", err)
	}
	plan.Mounts[1].Writable = false
	if err := Passable(plan, root); !errors.As(err, &c) || c.Dir != root || !strings.Contains(err.Error(), "nobody of this host") {
		t.Errorf("a read-only one: %v", err)
	}
	plan.Mounts[1].Writable = true
	// A grant of its own is reached through the other one's directories.
	plan.Mounts = append(plan.Mounts, pathplan.Mount{Kind: pathplan.Grant, Path: deep, Dir: true})
	if err := Passable(plan, root); !errors.As(err, &c) || c.Target != deep {
		t.Errorf("a grant below it: %v", err)
	}
	plan.Mounts = plan.Mounts[3:]
	if err := Passable(plan, filepath.Join(deep, "x")); err != nil {
		t.Error(err)
	}
}
