package pathplan

import (
	"os"
	"path/filepath"
	"testing"

	"skep.dev/skep/internal/profile"
)

// On the real file system, with a symlink that a repository brought along.
func TestOnTheRealFileSystem(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"home/.ssh", "home/work/.git/hooks", "state"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"home/work/keys": "../.ssh", "home/work/st": root + "/state", "home/w": "work"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	make1 := func(yaml string) (*Plan, string) {
		p, faults := profile.ParseAt("p.yaml", profile.Place{Dir: root + "/home/w", Home: root + "/home"}, []byte(yaml))
		if faults != nil {
			t.Fatal(faults.Render())
		}
		plan, faults := Make(Input{Profile: p, Homes: []string{root + "/home"}, Own: []string{root + "/state"}}, OS{})
		return plan, faults.Error()
	}
	plan, faults := make1("paths: [{path: ., rights: rw}, {path: ./.git/hooks, rights: ro}]")
	if faults != "" || plan.Writable(root+"/home/work/.git/hooks/x") || !plan.Writable(root+"/home/work/a") || len(plan.Mounts) != 3 {
		t.Errorf("%+v, %s", plan, faults)
	}
	for _, entry := range []string{"./keys", "./st", "./st/ledger"} {
		if plan, faults := make1("paths: [{path: " + entry + ", rights: ro}]"); plan != nil || faults == "" {
			t.Errorf("%s is granted: %+v", entry, plan)
		}
	}
	for path, want := range map[string]Kind{root + "/home": Dir, root + "/home/w": Symlink, root + "/no": Absent, "/dev/null": Other} {
		if got, err := (OS{}).Lstat(path); got != want || err != nil {
			t.Errorf("%s: %d, %v", path, got, err)
		}
	}
}
