package snapshot

import (
	"context"
	"strings"
	"testing"
)

type list []Entry

func (l list) Walk(_ context.Context, yield func(Entry) error) error {
	for _, e := range l {
		if err := yield(e); err != nil {
			return err
		}
	}
	return nil
}

func yes(int, string) bool { return true }

func diffOf(t *testing.T, entries list, judge Judge) *Difference {
	t.Helper()
	d, err := Diff(context.Background(), entries, []string{"/w", "/w/sub"}, judge)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// S5a, row by row: what is listed first and what a merge leaves out.
func TestActivePaths(t *testing.T) {
	text, program := fileState("x", 0o644), fileState("x", 0o755)
	for _, c := range []struct {
		path         string
		layer        State
		active, held bool
	}{
		{".git/config", text, true, true},
		{".git/hooks/pre-commit", program, true, true},
		{".git/info/attributes", text, true, true},
		{".GIT/config", text, true, true},
		{".git/packed-refs", text, true, false},
		{".git/objects/ab/cd", text, false, false},
		{".git/refs/heads/main", text, false, false},
		{".git/logs/HEAD", text, false, false},
		{".git/HEAD", text, false, false},
		{".git/index", text, false, false},
		{".git/modules/lib/hooks/post-checkout", program, true, true},
		{".git/worktrees/w/config.worktree", text, true, true},
		{"deep/er/.git/config", text, true, true},
		{"sub/.git", text, true, true}, // a file: gitdir: elsewhere
		{".git", State{Type: Symlink, Target: "/x", Size: 2}, true, true},
		{".git", State{Type: Dir, Mode: 0o755}, false, false},
		{".gitmodules", text, true, true},
		{"a/.gitattributes", text, true, true},
		{".envrc", text, true, true},
		{".vscode", State{Type: Dir, Mode: 0o755}, true, true},
		{".vscode/tasks.json", text, true, true},
		{".idea/x", text, true, true},
		{".husky/pre-push", text, true, true},
		{"my.code-workspace", text, true, true},
		{"package.json", text, true, false},
		{"Makefile", text, true, false},
		{".github/workflows/ci.yml", text, true, false},
		{"tool", program, true, false},
		{"main.go", text, false, false},
		{"git/config", text, false, false},
	} {
		d := diffOf(t, list{{Path: c.path, Layer: c.layer}}, yes)
		if e := d.Entries[0]; (e.Active != "") != c.active || e.Held != c.held {
			t.Errorf("%s (%s): active %q, held %v", c.path, c.layer.Type, e.Active, e.Held)
		}
	}
	known := list{{Path: "tool", Base: program, Layer: fileState("y", 0o755)}}
	if e := diffOf(t, known, yes).Entries[0]; e.Active != "" {
		t.Errorf("a known executable is called %q", e.Active)
	}
}

func TestGrantInsideGitDirectoryIsActive(t *testing.T) {
	d, err := Diff(context.Background(), list{{Path: "pre-commit", Layer: fileState("x", 0o755)}}, []string{"/w/.git/hooks"}, yes)
	if err != nil || !d.Entries[0].Held {
		t.Errorf("held %v, %v", d.Entries[0].Held, err)
	}
}

func TestZeroJudgeRefuses(t *testing.T) {
	d := diffOf(t, list{{Path: "a", Layer: fileState("x", 0o644)}}, nil)
	if d.Entries[0].Refused == "" {
		t.Error("no judge, and not refused")
	}
}

// Over several grants the order is that of the full paths, and the hash does
// not depend on the order in which entries came.
func TestOrderAndHashOverGrants(t *testing.T) {
	entries := list{
		{Grant: 1, Path: ".", Base: State{Type: Dir, Mode: 0o755}, Layer: State{Type: Dir, Mode: 0o700}},
		{Grant: 1, Path: "z", Layer: fileState("z", 0o644)},
		{Path: "sub-2", Layer: fileState("s", 0o644)},
		{Path: "a", Layer: fileState("a", 0o644)},
		{Path: "a/b", Base: fileState("b", 0o644)},
		{Path: "a-b", Layer: fileState("c", 0o644)},
		{Path: ".", Base: State{Type: Dir, Mode: 0o755}, Layer: State{Type: Dir, Mode: 0o700}},
		{Path: "!", Layer: fileState("c", 0o644)},
	}
	d := diffOf(t, entries, yes)
	for i := 1; i < len(d.Entries); i++ {
		if a, b := d.FullPath(&d.Entries[i-1]), d.FullPath(&d.Entries[i]); a >= b {
			t.Errorf("%q before %q", a, b)
		}
	}
	reversed := make(list, len(entries))
	for i, e := range entries {
		reversed[len(entries)-1-i] = e
	}
	if diffOf(t, reversed, yes).Hash != d.Hash {
		t.Error("the hash depends on the order of the walk")
	}
}

func TestDiffRefusesWhatNoLayerSends(t *testing.T) {
	good := Entry{Path: "a", Layer: fileState("x", 0o644)}
	for name, l := range map[string]list{
		"twice":      {good, good},
		"grant":      {{Grant: 2, Path: "a", Layer: good.Layer}},
		"no change":  {{Path: "a", Base: good.Layer, Layer: good.Layer}},
		"nothing":    {{Path: "a"}},
		"up":         {{Path: "../a", Layer: good.Layer}},
		"absolute":   {{Path: "/a", Layer: good.Layer}},
		"dot inside": {{Path: "a/./b", Layer: good.Layer}},
		"NUL":        {{Path: "a\x00", Layer: good.Layer}},
		"long":       {{Path: strings.Repeat("a/", MaxPath/2) + "a", Layer: good.Layer}},
	} {
		if _, err := Diff(context.Background(), l, []string{"/w", "/x"}, yes); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// S5: never wider for group and others, never set-id.
func TestMergedModeOnlyNarrows(t *testing.T) {
	for base := uint32(0); base <= 0o7777; base += 3 {
		for _, layer := range []uint32{0, 0o777, 0o7777, 0o755, 0o4755, 0o644, 0o666, 0o600, 0o711, 0o1777} {
			got := MergedMode(State{Type: File, Mode: base}, State{Type: File, Mode: layer})
			may := base&0o066 | 0o700 | base&0o011 | base&0o044>>2
			if got&^may != 0 || got&^layer != 0 {
				t.Fatalf("base %o, layer %o: %o", base, layer, got)
			}
		}
	}
	for layer, want := range map[uint32]uint32{0o777: 0o755, 0o4755: 0o755, 0o600: 0o600, 0o1777: 0o755} {
		if got := MergedMode(State{}, State{Type: Dir, Mode: layer}); got != want {
			t.Errorf("new %o: %o, want %o", layer, got, want)
		}
	}
	if got := MergedMode(State{Type: File, Mode: 0o644}, State{Type: File, Mode: 0o755}); got != 0o755 {
		t.Errorf("chmod +x was lost: %o", got)
	}
}

// Who judges again from what was sent, as a merge does, gives the same reason.
func TestReasonIsTheSameWhenJudgedAgain(t *testing.T) {
	for _, e := range []Entry{
		{Path: "fifo", Layer: State{Type: FIFO}},
		{Path: "socket", Layer: State{Type: Socket}},
		{Path: "large", Layer: State{Type: File, Oversized: true}},
		{Path: "closed", Layer: State{Type: File, Unreadable: true}},
		{Path: "readonly", Layer: State{Type: File}},
	} {
		first := refusal(&e, func(int, string) bool { return e.Path != "readonly" })
		again := refusal(&e, func(int, string) bool { return false })
		if first == "" || first != again {
			t.Errorf("%s: %q, then %q", e.Path, first, again)
		}
	}
}
