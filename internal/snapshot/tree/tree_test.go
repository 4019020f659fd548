package tree

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/sys"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openDir(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(t.TempDir())
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// Holes are kept wherever they lie, the content is the same, and any other
// content than the one that was promised is refused.
func TestCopyKeepsHolesAndChecks(t *testing.T) {
	const block = 64 << 10
	for name, offsets := range map[string][]int64{
		"empty": {}, "hole first": {40 * block}, "hole last": {0, -80 * block}, "both": {20 * block, 60 * block, -90 * block},
	} {
		dir := openDir(t)
		path := filepath.Join(dir.Name(), "src")
		f, err := os.Create(path)
		must(t, err)
		for _, at := range offsets {
			if at < 0 {
				must(t, f.Truncate(-at))
				continue
			}
			_, err := f.WriteAt([]byte("data"), at)
			must(t, err)
		}
		f.Close()
		want, _, err := Reader{}.At(context.Background(), dir, "src")
		must(t, err)
		src, err := os.Open(path)
		must(t, err)
		defer src.Close()
		must(t, CopyFile(context.Background(), dir, "dst", src, want))
		got, st, err := Reader{}.At(context.Background(), dir, "dst")
		must(t, err)
		if !got.SameContent(want) {
			t.Errorf("%s: another content", name)
		}
		if st.Blocks*512 > 8*block {
			t.Errorf("%s: %d bytes on disk", name, st.Blocks*512)
		}
		for what, lie := range map[string]func(*snapshot.State){
			"digest": func(s *snapshot.State) { s.Digest[0]++ },
			"longer": func(s *snapshot.State) { s.Size++ },
		} {
			s := want
			lie(&s)
			if err := CopyFile(context.Background(), dir, "lie-"+what, src, s); !errors.Is(err, ErrMoved) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
	dir := openDir(t)
	must(t, os.WriteFile(filepath.Join(dir.Name(), "src"), []byte("longer"), 0o600))
	src, err := os.Open(filepath.Join(dir.Name(), "src"))
	must(t, err)
	defer src.Close()
	short := snapshot.State{Type: snapshot.File, Size: 4, Digest: sha256.Sum256([]byte("long"))}
	if err := CopyFile(context.Background(), dir, "dst", src, short); !errors.Is(err, ErrMoved) {
		t.Errorf("a content with more behind it was taken: %v", err)
	}
}

func TestRemoveFollowsNothing(t *testing.T) {
	dir, outside := openDir(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(dir.Name(), "d"), 0o755))
	must(t, os.Symlink(outside, filepath.Join(dir.Name(), "d/link")))
	must(t, os.Symlink("link", filepath.Join(dir.Name(), "d/loop")))
	must(t, syscall.Mkfifo(filepath.Join(dir.Name(), "d/pipe"), 0))
	must(t, os.Chmod(filepath.Join(dir.Name(), "d"), 0))
	must(t, Remove(dir, "d"))
	must(t, Remove(dir, "d"))
	if left, _ := os.ReadDir(dir.Name()); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Error(err)
	}
}

func TestReadingListsAndOpensNoSpecialFile(t *testing.T) {
	dir := openDir(t)
	must(t, syscall.Mkfifo(filepath.Join(dir.Name(), "pipe"), 0o644))
	done := make(chan snapshot.State, 1)
	go func() {
		s, _, _ := Reader{}.At(context.Background(), dir, "pipe")
		done <- s
	}()
	select {
	case s := <-done:
		if s.Type != snapshot.FIFO {
			t.Errorf("a FIFO is a %s", s.Type)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a FIFO was opened")
	}
	if s, _, err := (Reader{}).At(context.Background(), dir, "none"); err != nil || s.Type != snapshot.Absent {
		t.Errorf("%v, %v", s.Type, err)
	}
}

func TestHashingCanBeStopped(t *testing.T) {
	dir := openDir(t)
	must(t, os.WriteFile(filepath.Join(dir.Name(), "huge"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(dir.Name(), "huge"), 1<<42)) // a hole: hours of zeros
	stop := errors.New("stop")
	_, _, err := Reader{Progress: func(int64) error { return stop }}.At(context.Background(), dir, "huge")
	if !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestAttributesAreTheUsersAlone(t *testing.T) {
	dir := openDir(t)
	must(t, os.WriteFile(filepath.Join(dir.Name(), "f"), nil, 0o600))
	f, err := os.Open(filepath.Join(dir.Name(), "f"))
	must(t, err)
	defer f.Close()
	if err := sys.SetXattr(f, "user.overlay.origin", []byte("x")); err != nil {
		t.Skipf("no user attributes here: %v", err)
	}
	must(t, sys.SetXattr(f, "user.old", []byte("x")))
	must(t, SetXattrs(f, []snapshot.Xattr{{Name: "user.a", Value: []byte("1")}}))
	got, oversized, err := Xattrs(f)
	must(t, err)
	if oversized || len(got) != 1 || got[0].Name != "user.a" {
		t.Errorf("got %v", got)
	}
	if _, kept, _ := sys.GetXattr(f, "user.overlay.origin"); !kept {
		t.Error("an attribute that a difference does not know was removed")
	}
}
