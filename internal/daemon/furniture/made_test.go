package furniture

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/sys"
)

// A file's layer has a copy of it: content, mode without set-id bits, time,
// attributes. A second file of the directory joins the first.
func TestLayerOfAFileHasACopy(t *testing.T) {
	dir, at := t.TempDir(), filepath.Join(t.TempDir(), "layer")
	var first *os.File
	for _, name := range []string{"one", "two"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if first == nil {
			first = f
			_ = sys.SetXattr(f, "user.note", []byte("kept")) // not every filesystem has them
		}
		if err := os.Chmod(path, 0o640|os.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(1e9, 5)); err != nil {
			t.Fatal(err)
		}
		layer, err := MakeLayer(context.Background(), at, name, f)
		if err != nil {
			t.Fatal(err)
		}
		defer layer.Close()
		copied := filepath.Join(at, "lower", name)
		content, err := os.ReadFile(copied)
		if err != nil || string(content) != name {
			t.Errorf("the copy holds %q, %v", content, err)
		}
		st, err := os.Lstat(copied)
		if err != nil || st.Mode() != 0o640 || !st.ModTime().Equal(time.Unix(1e9, 5)) {
			t.Errorf("the copy is %v of %v, %v", st.Mode(), st.ModTime(), err)
		}
	}
	copied, err := os.Open(filepath.Join(at, "lower/one"))
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	want, _, _ := sys.GetXattr(first, "user.note")
	if got, _, err := sys.GetXattr(copied, "user.note"); err != nil || string(got) != string(want) {
		t.Errorf("the copy has the attribute %q, %v, want %q", got, err, want)
	}
}

// Nothing is copied that the caller did not open for reading, and nothing that
// would hold the reader.
func TestLayerOfAFileThatMayNotBeRead(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, why := range map[string]string{file: "not opened for reading", fifo: "no regular file"} {
		f, err := sys.OpenPath(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := MakeLayer(context.Background(), filepath.Join(dir, "layer"), "x", f); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
