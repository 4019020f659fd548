package merge

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/layer"
	"skep.dev/skep/internal/snapshot/walk"
	"skep.dev/skep/internal/sys"
)

// localLayer serves plain directories as base and upper in this process.
func localLayer(t *testing.T, grants ...layer.Grant) *layer.Client {
	t.Helper()
	ours, theirs, err := sys.SeqpacketPair()
	must(t, err)
	go func() {
		_ = layer.Serve(context.Background(), theirs, grants, layer.Powers{Walk: true, Open: true})
		theirs.Close()
	}()
	c := layer.NewClient(ours, len(grants))
	t.Cleanup(func() { c.Close() })
	return c
}

func dir(t *testing.T, files map[string]string) *os.File {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o644))
	}
	f, err := os.Open(root)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func reads(t *testing.T, path, want string) {
	t.Helper()
	if content, err := os.ReadFile(path); err != nil || string(content) != want {
		t.Errorf("%s reads %q, %v, want %q", path, content, err, want)
	}
}

// Two trees and a single file are one merge: all or nothing over all three.
func TestSeveralGrantsAreOneMerge(t *testing.T) {
	begin := time.Now()
	one, two := dir(t, map[string]string{"a": "1"}), dir(t, map[string]string{"b": "1", "beside": "kept"})
	three := dir(t, nil)
	file, err := os.Open(filepath.Join(two.Name(), "b"))
	must(t, err)
	defer file.Close()
	client := localLayer(t,
		layer.Grant{Grant: walk.Grant{Base: one, Upper: dir(t, map[string]string{"a": "2"})}},
		layer.Grant{Grant: walk.Grant{Files: map[string]*os.File{"b": file}, Upper: dir(t, map[string]string{"b": "2", "beside": "no"})}},
		layer.Grant{Grant: walk.Grant{Base: three, Upper: dir(t, map[string]string{"d/e": "2"})}})
	base, err := client.Open(context.Background(), snapshot.BaseSide, 1, "b")
	must(t, err)
	if content, _ := io.ReadAll(base); string(content) != "1" {
		t.Errorf("the base of a file grant reads %q", content)
	}
	base.Close()
	req := Request{
		Roots: []Root{{Path: one.Name(), Dir: one}, {Path: two.Name(), Dir: two}, {Path: three.Name(), Dir: three}},
		Layer: client, Judge: func(grant int, path string) bool { return grant != 1 || path == "b" }, StateDir: t.TempDir(),
	}
	d, err := snapshot.Diff(context.Background(), client, []string{one.Name(), two.Name(), three.Name()}, req.Judge)
	must(t, err)
	req.Hash = d.Hash
	renames := 0
	req.Step = func(name string) error {
		if name == "rename" {
			if renames++; renames == 3 {
				return os.ErrDeadlineExceeded
			}
		}
		return nil
	}
	if _, err := Apply(context.Background(), req); err == nil {
		t.Fatal("the third rename did not fail")
	}
	reads(t, filepath.Join(one.Name(), "a"), "1")
	reads(t, filepath.Join(two.Name(), "b"), "1")
	req.Step = nil
	result, err := Apply(context.Background(), req)
	must(t, err)
	reads(t, filepath.Join(one.Name(), "a"), "2")
	reads(t, filepath.Join(two.Name(), "b"), "2")
	reads(t, filepath.Join(two.Name(), "beside"), "kept")
	reads(t, filepath.Join(three.Name(), "d/e"), "2")
	if len(result.LeftOut) != 1 || !strings.Contains(result.LeftOut[0].Reason, "does not make this path writable") {
		t.Errorf("left out %v", result.LeftOut)
	}
	for since, want := range map[time.Time]bool{begin: true, time.Now(): false} {
		if done, err := Finished(req.StateDir, d.Hash, since); done != want || err != nil {
			t.Errorf("finished since %v: %v %v", since, done, err)
		}
	}
	must(t, Undo(context.Background(), req.StateDir, d.Hash[:12], nil, nil))
	if done, err := Finished(req.StateDir, d.Hash, begin); done || err != nil {
		t.Errorf("finished though it is undone: %v %v", done, err)
	}
	if _, err := Finished(req.StateDir, "../"+d.Hash[3:], begin); err == nil {
		t.Error("a path is a hash")
	}
	reads(t, filepath.Join(two.Name(), "b"), "1")
	for _, root := range []*os.File{one, two, three} {
		names, _ := filepath.Glob(root.Name() + "/.skep-*")
		if len(names) != 0 {
			t.Errorf("left behind: %v", names)
		}
	}
}

// Until the renames begin nothing of the tree has changed for git, at any step.
func TestGitStatusIsUnchangedUntilTheMerge(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	base := dir(t, map[string]string{"a": "1\n"})
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", base.Name(), "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
		return string(out)
	}
	git("init", "-q")
	git("add", "a")
	git("commit", "-q", "-m", "one")
	client := localLayer(t, layer.Grant{Grant: walk.Grant{Base: base, Upper: dir(t, map[string]string{"a": "2\n", "new": "n\n"})}})
	d, err := snapshot.Diff(context.Background(), client, []string{base.Name()}, anything)
	must(t, err)
	req := Request{Roots: []Root{{Path: base.Name(), Dir: base}}, Layer: client, Judge: anything, StateDir: t.TempDir(), Hash: d.Hash}
	req.Step = func(name string) error {
		if name == "begin" || name == "make staging" {
			if status := git("status", "--porcelain"); status != "" {
				t.Errorf("before %q: %s", name, status)
			}
		}
		return nil
	}
	_, err = Apply(context.Background(), req)
	must(t, err)
	if status := git("status", "--porcelain"); status != " M a\n?? new\n" {
		t.Errorf("after: %q", status)
	}
}

func TestOldMergesAreForgotten(t *testing.T) {
	base := dir(t, map[string]string{"a": "1"})
	client := localLayer(t, layer.Grant{Grant: walk.Grant{Base: base, Upper: dir(t, map[string]string{"a": "2"})}})
	d, err := snapshot.Diff(context.Background(), client, []string{base.Name()}, anything)
	must(t, err)
	state := t.TempDir()
	_, err = Apply(context.Background(), Request{Roots: []Root{{Path: base.Name(), Dir: base}}, Layer: client, Judge: anything, StateDir: state, Hash: d.Hash})
	must(t, err)
	kept := filepath.Join(state, "merges", d.Hash)
	_, err = Recover(state)
	must(t, err)
	if _, err := os.Stat(kept); err != nil {
		t.Fatal(err)
	}
	_, err = recoverAll(state, time.Now().Add(UndoFor+time.Minute), nil)
	must(t, err)
	if _, err := os.Stat(kept); !os.IsNotExist(err) {
		t.Errorf("after 30 days: %v", err)
	}
}

// What a person wrote into a tree between the crash and the recovery stays.
func TestLaterWorkSurvivesRecovery(t *testing.T) {
	base := dir(t, map[string]string{"a": "1"})
	client := localLayer(t, layer.Grant{Grant: walk.Grant{Base: base, Upper: dir(t, map[string]string{"a": "2", "new/f": "f"})}})
	d, err := snapshot.Diff(context.Background(), client, []string{base.Name()}, anything)
	must(t, err)
	state := t.TempDir()
	req := Request{Roots: []Root{{Path: base.Name(), Dir: base}}, Layer: client, Judge: anything, StateDir: state, Hash: d.Hash}
	crash := func(step func(string) error) {
		req.Step = step
		_, _ = Apply(context.Background(), req)
	}
	crashes(func(step func(string) error) {
		crash(func(name string) error { // dies before the first directory is settled
			if name == "settle" {
				return step(name)
			}
			return nil
		})
	}, 1)
	must(t, os.WriteFile(filepath.Join(base.Name(), "a"), []byte("mine"), 0o644))
	must(t, os.WriteFile(filepath.Join(base.Name(), "new/mine"), []byte("mine"), 0o644))
	_, err = Recover(state)
	if err == nil || !strings.Contains(err.Error(), "its version from before is") {
		t.Errorf("recovery says %v", err)
	}
	reads(t, filepath.Join(base.Name(), "a"), "mine")
	reads(t, filepath.Join(base.Name(), "new/mine"), "mine")
	old, _ := filepath.Glob(filepath.Join(base.Name(), ".skep-merge-*/u*"))
	if len(old) != 1 {
		t.Fatalf("kept %v", old)
	}
	reads(t, old[0], "1")
	// Once the person has decided, the next command tidies up.
	must(t, os.Remove(old[0]))
	_, err = Recover(state)
	must(t, err)
	if left, _ := filepath.Glob(filepath.Join(base.Name(), ".skep-*")); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}
