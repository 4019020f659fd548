package attack

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/sys"
)

// TestLayersAreOutOfReach: the cell sees its writable grant, not the layer behind
// it; and no mark of its own making is one that the kernel believes (L8).
func TestLayersAreOutOfReach(t *testing.T) {
	c := celltest.New(t)
	tree, free := c.Make("tree"), t.TempDir()
	layer := c.Writable(tree)
	for _, dir := range []string{tree, free} {
		write(t, filepath.Join(dir, "base"), "base\n", 0o644)
	}
	aside := t.TempDir()
	for _, d := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(aside, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	attack{
		technique: "overlay", own: true, outside: []string{free, aside, aside + "/upper", aside + "/work"},
		inside: []string{tree, layer, layer + "/upper", layer + "/work"},
		root:   []string{"make the lower tree's file another's"},
	}.run(t, c)
	if got := marks(t, filepath.Join(free, "marked")); len(got) == 0 {
		t.Error("the marks are not set outside either, so they prove nothing")
	}
	if got := marks(t, filepath.Join(layer, "upper/marked")); len(got) != 0 {
		t.Errorf("the layer has marks of the agent's making: %q", got)
	}
}

// marks are the attributes of a directory that overlayfs would act upon.
func marks(t *testing.T, dir string) []string {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	names, err := sys.ListXattrs(f)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool {
		value, found, err := sys.GetXattr(f, n)
		ours := err == nil && found && strings.Contains(string(value), "/etc")
		_, after, _ := strings.Cut(n, ".overlay.")
		return !ours || strings.HasPrefix(after, "overlay.") // escaped by the kernel: a name like any other
	})
}
