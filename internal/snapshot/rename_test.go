package snapshot

import (
	"context"
	"crypto/sha256"
	"strings"
	"testing"
)

func renamable(content string) State {
	return State{Type: File, Mode: 0o644, Size: int64(len(content)), Digest: sha256.Sum256([]byte(content))}
}

// pairs names what Renames found, as "from>to".
func pairs(t *testing.T, entries []Entry, judge Judge) (string, *Difference) {
	t.Helper()
	d, err := Diff(context.Background(), walked(entries), []string{"/w", "/v"}, judge)
	if err != nil {
		t.Fatal(err)
	}
	r := d.Renames()
	var out []string
	for i := range d.Entries {
		if from, is := r.From[i]; is {
			out = append(out, d.Entries[from].Path+">"+d.Entries[i].Path)
			if r.To[from] != i {
				t.Errorf("the two ways differ: %v", r)
			}
		}
	}
	if len(r.To) != len(r.From) {
		t.Errorf("%v", r)
	}
	return strings.Join(out, " "), d
}

type walked []Entry

func (w walked) Walk(_ context.Context, yield func(Entry) error) error {
	for _, e := range w {
		if err := yield(e); err != nil {
			return err
		}
	}
	return nil
}

func anywhere(int, string) bool { return true }

func TestOnlyOneAndOnlyOneIsARename(t *testing.T) {
	a, b := renamable("a"), renamable("b")
	moded := a
	moded.Mode = 0o600
	removed := func(path string, s State) Entry { return Entry{Path: path, Base: s} }
	added := func(path string, s State) Entry { return Entry{Path: path, Layer: s} }
	for name, c := range map[string]struct {
		entries []Entry
		want    string
	}{
		"one of each":          {[]Entry{removed("x", a), added("y", a)}, "x>y"},
		"another mode":         {[]Entry{removed("x", a), added("y", moded)}, "x>y"},
		"two at a time":        {[]Entry{removed("x", a), added("y", a), removed("p", b), added("q", b)}, "p>q x>y"},
		"other bytes":          {[]Entry{removed("x", a), added("y", b)}, ""},
		"which of two it was":  {[]Entry{removed("x", a), removed("z", a), added("y", a)}, ""},
		"which of two it is":   {[]Entry{removed("x", a), added("y", a), added("z", a)}, ""},
		"nothing in them":      {[]Entry{removed("x", renamable("")), added("y", renamable(""))}, ""},
		"a copy":               {[]Entry{added("y", a)}, ""},
		"over another":         {[]Entry{removed("x", a), {Path: "y", Base: b, Layer: a}}, ""},
		"what the host runs":   {[]Entry{removed("x", a), added(".git/hooks/post-merge", a)}, ""},
		"another tree":         {[]Entry{removed("x", a), {Grant: 1, Path: "y", Layer: a}}, ""},
		"links, which have no": {[]Entry{removed("x", State{Type: Symlink, Target: "a", Size: 1}), added("y", State{Type: Symlink, Target: "a", Size: 1})}, ""},
	} {
		if got, _ := pairs(t, c.entries, anywhere); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	refused := func(_ int, path string) bool { return path != "y" }
	if got, _ := pairs(t, []Entry{removed("x", a), added("y", a)}, refused); got != "" {
		t.Errorf("what a merge refuses is %q", got)
	}
}

// A rename is a reading: the hash is that of the operations, and too many are not read.
func TestRenamesChangeNothing(t *testing.T) {
	a := renamable("a")
	_, d := pairs(t, []Entry{{Path: "x", Base: a}, {Path: "y", Layer: a}}, anywhere)
	if ops := d.Entries[0].Op().String() + d.Entries[1].Op().String(); ops != "removedadded" {
		t.Errorf("the operations are %s", ops)
	}
	if got := HashEntries(d.Entries, d.FullPath); got != d.Hash {
		t.Errorf("the hash is %s, was %s", got, d.Hash)
	}
	for i := range MaxRenameCandidates {
		d.Entries = append(d.Entries, Entry{Path: "z", Layer: State{Type: File, Size: int64(i) + 2}})
	}
	if r := d.Renames(); len(r.From)+len(r.To) > 0 {
		t.Errorf("%d and %d of too many", len(r.From), len(r.To))
	}
}
