package opened

import (
	"os"
	"path/filepath"
	"testing"

	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/sys"
)

func TestPlanIsOpenedWithItsLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	p, faults := profile.ParseAt("p.yaml", profile.Place{Dir: dir}, []byte("version: v1\npaths: [{path: ./link, rights: ro}]\n"))
	if faults != nil {
		t.Fatal(faults)
	}
	h := &Host{}
	plan, faults := pathplan.Make(pathplan.Input{Profile: p}, h)
	if faults != nil {
		t.Fatal(faults)
	}
	var b Bundle
	defer b.Close()
	if err := b.Plan(plan, h.Links); err != nil {
		t.Fatal(err)
	}
	got := map[string]uint32{}
	for i, f := range b.Files {
		st, err := sys.StatFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := sys.PathOf(f); !ok || at != b.Roles[i].Path {
			t.Errorf("%s stands at %s", b.Roles[i].Path, at)
		}
		got[b.Roles[i].Path] = st.Mode & sys.ModeTypeMask
	}
	if len(got) != 2 || got[filepath.Join(dir, "real")] != sys.ModeDir || got[filepath.Join(dir, "link")] != sys.ModeSymlink {
		t.Errorf("opened %v", got)
	}
	if err := b.Path(filepath.Join(dir, "absent")); err == nil {
		t.Error("what is not there was opened")
	}
}
