package walk

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/sys"
)

// build makes a tree: names ending in "/" are directories, in "|" FIFOs, in
// "!" whiteouts (needs root); "name@attribute=value" sets one attribute.
func build(t *testing.T, names ...string) *os.File {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		name, attribute, _ := strings.Cut(name, "@")
		path := filepath.Join(root, strings.TrimRight(name, "/|!"))
		var err error
		switch name[len(name)-1] {
		case '/':
			err = os.MkdirAll(path, 0o755)
		case '|':
			err = syscall.Mkfifo(path, 0o644)
		case '!':
			if err = syscall.Mknod(path, syscall.S_IFCHR, 0); err != nil {
				t.Skipf("making a whiteout by hand needs root: %v", err)
			}
		default:
			err = os.WriteFile(path, []byte(strings.Repeat("x", len(attribute)%2)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if key, value, ok := strings.Cut(attribute, "="); ok {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			err = sys.SetXattr(f, key, []byte(value))
			f.Close()
			if err != nil {
				t.Skipf("no user attributes here: %v", err)
			}
		}
	}
	f, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func entries(t *testing.T, g Grant) (map[string]string, error) {
	t.Helper()
	got := map[string]string{}
	err := Layer(context.Background(), 0, g, func(e snapshot.Entry) error {
		got[e.Path] = e.Op().String()
		if e.Refused != "" {
			got[e.Path] += " refused"
		}
		return nil
	}, nil)
	return got, err
}

// The forms of overlayfs's marks that a real mount of this kernel may not show.
func TestMarksOfTheOverlay(t *testing.T) {
	for _, c := range []struct {
		name        string
		base, upper []string
		want        map[string]string
	}{
		{"whiteout", []string{"a", "d/", "d/x"}, []string{"a!", "d!"},
			map[string]string{"a": "removed", "d": "removed", "d/x": "removed"}},
		{"whiteout of nothing", nil, []string{"a!"}, map[string]string{}},
		{"opaque", []string{"d/", "d/x", "d/s/", "d/s/y"}, []string{"d/@user.overlay.opaque=y", "d/s/", "d/new"},
			map[string]string{"d/x": "removed", "d/s/y": "removed", "d/new": "added"}},
		{"merged", []string{"d/", "d/x", "d/s/", "d/s/y"}, []string{"d/", "d/s/", "d/new"},
			map[string]string{"d/new": "added"}},
		{"attribute whiteout", []string{"d/", "d/x", "d/y"},
			[]string{"d/@user.overlay.opaque=x", "d/x@user.overlay.whiteout=yy"}, map[string]string{"d/x": "removed"}},
		{"an empty file with the mark elsewhere is a file", []string{"d/"},
			[]string{"d/", "d/x@user.overlay.whiteout=yy"}, map[string]string{"d/x": "added"}},
		{"names that look like whiteouts", []string{"a"}, []string{".wh.a", ".wh..wh..opq"},
			map[string]string{".wh.a": "added", ".wh..wh..opq": "added"}},
		{"a FIFO is listed", nil, []string{"p|"}, map[string]string{"p": "added"}},
		{"directory over file", []string{"a"}, []string{"a/", "a/b"}, map[string]string{"a": "type", "a/b": "added"}},
		{"file over directory", []string{"a/", "a/b"}, []string{"a"}, map[string]string{"a": "type", "a/b": "removed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := entries(t, Grant{Base: build(t, c.base...), Upper: build(t, c.upper...)})
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

// A layer that hides where its content comes from is refused, not guessed at.
func TestForeignFeaturesAreRefused(t *testing.T) {
	for _, mark := range []string{"user.overlay.redirect=/etc", "user.overlay.metacopy=1"} {
		if got, err := entries(t, Grant{Base: build(t), Upper: build(t, "d/@"+mark)}); err == nil {
			t.Errorf("%s: %v", mark, got)
		}
	}
}

// Symlinks in base and layer lead nowhere: not to a digest, not into a tree.
func TestNoLinkIsFollowed(t *testing.T) {
	base, upper := build(t, "d/", "d/x"), build(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{filepath.Join(upper.Name(), "d"), filepath.Join(base.Name(), "e")} {
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(upper.Name(), "e"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := entries(t, Grant{Base: base, Upper: upper})
	want := map[string]string{"d": "type", "d/x": "removed", "e": "type"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestRootIsComparedOnlyWhereItsMakerSaysSo(t *testing.T) {
	base, upper := build(t), build(t)
	if err := os.Chmod(upper.Name(), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := entries(t, Grant{Base: base, Upper: upper}); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := entries(t, Grant{Base: base, Upper: upper, CompareRoot: true}); err != nil || got["."] != "mode" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestFileGrant(t *testing.T) {
	base, upper := build(t, "f@note"), build(t, "f", "stray")
	file, err := os.Open(filepath.Join(base.Name(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want := map[string]string{"f": "changed", "stray": "added"}
	if err := os.WriteFile(filepath.Join(upper.Name(), "f"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	g := Grant{Files: map[string]*os.File{"f": file}, Upper: upper}
	for range 2 { // the descriptor stands at its end after the first
		if got, err := entries(t, g); err != nil || !maps.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	// The host has removed it meanwhile; the cell has made a directory of it.
	g = Grant{Files: map[string]*os.File{}, Upper: build(t, "f/", "f/f")}
	if got, err := entries(t, g); err != nil || !maps.Equal(got, map[string]string{"f": "added refused", "f/f": "added refused"}) {
		t.Errorf("got %v, %v", got, err)
	}
	g = Grant{Files: map[string]*os.File{"f": file}, Upper: build(t, "f/", "f/f")}
	if got, err := entries(t, g); err != nil || !maps.Equal(got, map[string]string{"f": "type refused", "f/f": "added refused"}) {
		t.Errorf("got %v, %v", got, err)
	}
	// A link in its place would lead the next cell's grant elsewhere.
	for _, files := range []map[string]*os.File{{"f": file}, {}} {
		g = Grant{Files: files, Upper: build(t)}
		if err := os.Symlink("/etc/passwd", filepath.Join(g.Upper.Name(), "f")); err != nil {
			t.Fatal(err)
		}
		if got, err := entries(t, g); err != nil || !strings.HasSuffix(got["f"], " refused") {
			t.Errorf("got %v, %v", got, err)
		}
	}
	// A file that the cell has not touched is not in its layer, and no entry.
	g = Grant{Files: map[string]*os.File{"f": file}, Upper: build(t)}
	if got, err := entries(t, g); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestVeryDeepTree is the attack: a tree so deep that no path names what is in it hides
// nothing else, and is one refused entry at the depth that can be named.
func TestVeryDeepTree(t *testing.T) {
	upper, base := build(t, "a"), build(t, "b")
	t.Cleanup(func() { _ = tree.Remove(upper, strings.Repeat("d", 100)) })
	dir := upper
	for range 200 {
		name := strings.Repeat("d", 100)
		if err := sys.MkdirAt(dir, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := sys.OpenDirBeneath(dir, name)
		if dir != upper {
			dir.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		dir = next
	}
	dir.Close()
	got, err := entries(t, Grant{Base: base, Upper: upper})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for path, op := range got {
		if !strings.HasSuffix(op, " refused") {
			continue
		}
		if refused++; len(path) <= deepest || op != "added refused" {
			t.Errorf("%d bytes of path: %s", len(path), op)
		}
	}
	if refused != 1 || got["a"] != "added" || len(got) != deepest/101+2 {
		t.Errorf("%d entries, %d of them refused, beside %s", len(got), refused, got["a"])
	}
}

func TestWalkStopsWhenToldSo(t *testing.T) {
	upper := build(t, "a", "b", "c")
	n := 0
	err := Layer(context.Background(), 0, Grant{Base: build(t), Upper: upper}, func(snapshot.Entry) error {
		n++
		return os.ErrClosed
	}, nil)
	if err == nil || n != 1 {
		t.Errorf("%d entries, %v", n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Layer(ctx, 0, Grant{Base: build(t), Upper: upper}, func(snapshot.Entry) error { return nil }, nil); err == nil {
		t.Error("a cancelled walk went on")
	}
}
