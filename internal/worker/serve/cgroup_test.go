package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/worker/proto"
)

// TestMemoryLimitBoundsSwap: what a cell may not have in memory it does not get in
// swap, where the kernel counts that (L13).
func TestMemoryLimitBoundsSwap(t *testing.T) {
	const cell, limit = "abcdefghijklmnopqrstuvwxyz", 64 << 20
	for _, v := range []struct {
		root, mark, file, want string
		unified                bool
	}{
		{"/sys/fs/cgroup/memory", "tasks", "memory.memsw.limit_in_bytes", fmt.Sprint(limit), false},
		{"/sys/fs/cgroup", "cgroup.controllers", "memory.swap.max", "0", true},
	} {
		if _, err := os.Stat(filepath.Join(v.root, v.mark)); err != nil {
			continue // no hierarchy of this version
		}
		parent := filepath.Join(v.root, fmt.Sprintf("skep-test-%d", os.Getpid()))
		if err := os.Mkdir(parent, 0o755); err != nil {
			t.Logf("no groups can be made in %s: %v", v.root, err)
			continue
		}
		defer func() { _ = os.Remove(parent) }()
		if v.unified {
			_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+memory"), 0o644)
		}
		dir, err := sys.OpenPath(parent)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = dir.Close() }()
		c := cgroups{parents: []Hierarchy{{Dir: dir, Unified: v.unified, Controllers: []string{"memory"}}}}
		procs, err := c.create(cell, proto.Limits{Memory: limit})
		if err != nil {
			t.Fatal(err)
		}
		sys.CloseAll(procs)
		got, err := os.ReadFile(filepath.Join(parent, cell, v.file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			t.Logf("this kernel counts no swap in %s", v.root)
		case err != nil || strings.TrimSpace(string(got)) != v.want:
			t.Errorf("%s is %q, %v, want %s", v.file, got, err, v.want)
		}
		if _, err := c.remove(cell); err != nil {
			t.Error(err)
		}
	}
}
