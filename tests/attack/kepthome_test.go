package attack

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
)

// TestLinksInAKeptHome: a home that an earlier agent filled is hostile content. A
// link in it, where the next cell needs a mount point, leads nobody out: nothing
// is made where it points to, on the host (L9).
func TestLinksInAKeptHome(t *testing.T) {
	for name, plant := range map[string]func(home, target string) error{
		"a directory above the mount point": func(home, target string) error {
			return os.Symlink(target, filepath.Join(home, "project"))
		},
		"a relative link": func(home, target string) error {
			return os.Symlink("../../.."+target, filepath.Join(home, "project"))
		},
		"the file itself": func(home, target string) error {
			if err := os.Mkdir(filepath.Join(home, "project"), 0o777); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(target, "made"), filepath.Join(home, "project", "file"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := celltest.New(t, "/bin/true")
			// Not in /tmp, which the cell's tree covers while it is built.
			target, err := os.MkdirTemp("/var/tmp", "skep-attack-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(target) })
			if err := os.Chmod(target, 0o777); err != nil {
				t.Fatal(err)
			}
			home := filepath.Join(c.Dir, "home")
			if err := plant(home, target); err != nil {
				t.Fatal(err)
			}
			shown := c.Make("shown")
			file := write(t, filepath.Join(shown, "f"), "x", 0o644)
			c.ReadOnly(shown)
			c.ReadOnly(file)
			grants := c.Spec.Grants
			grants[len(grants)-2].Path = "/home/agent/project/deep/er"
			grants[len(grants)-1].Path = "/home/agent/project/file"
			c.Spec.Files = append(c.Spec.Files, cell.File{Path: "/home/agent/project/generated", Content: []byte("x")})
			if r, err := celltest.Driver(t).Start(context.Background(), c.Spec); err == nil {
				_ = c.Spec.Stdio.Close()
				c.Output()
				<-r.Done()
			} else {
				t.Logf("the cell is not built: %v", err)
			}
			entries, err := os.ReadDir(target)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				t.Errorf("building the cell made %s on the host", e.Name())
			}
			// Outside, whoever does not look makes it there.
			if name != "the file itself" {
				link := filepath.Join(t.TempDir(), "link")
				if err := os.Symlink(target, link); err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(filepath.Join(link, "deep"), 0o755); err != nil {
					t.Errorf("the link leads nowhere outside either: %v", err)
				}
			}
		})
	}
}
