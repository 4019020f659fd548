package attack

import (
	"os"
	"path/filepath"
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
)

// TestProtectedDirectoriesStayInPlace: what a rule makes read-only below a writable
// tree is not changed, and no directory above it is moved away (L8).
func TestProtectedDirectoriesStayInPlace(t *testing.T) {
	c := celltest.New(t)
	tree := c.Make("repository")
	free := t.TempDir()
	write(t, filepath.Join(tree, ".git/hooks/pre-commit"), "good\n", 0o755)
	layer := c.Writable(tree)
	c.Spec.Narrow = []cell.Narrow{
		{Path: filepath.Join(tree, ".git"), Kind: cell.MountPoint},
		{Path: filepath.Join(tree, ".git/hooks"), Kind: cell.ReadOnly},
	}
	outside := filepath.Join(free, "tree")
	write(t, filepath.Join(outside, ".git/hooks/pre-commit"), "good\n", 0o755)
	attack{technique: "protected", outside: []string{outside}, inside: []string{tree}}.run(t, c)
	// Whatever the attacker left in its layer, none of it is a hook.
	if got, err := os.ReadFile(filepath.Join(layer, "upper/.git/hooks/pre-commit")); err == nil {
		t.Errorf("the layer holds a hook: %q", got)
	}
	if got, err := os.ReadFile(filepath.Join(tree, ".git/hooks/pre-commit")); err != nil || string(got) != "good\n" {
		t.Errorf("the host's hook is %q, %v", got, err)
	}
}
