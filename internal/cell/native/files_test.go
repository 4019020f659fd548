package native_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
)

// runScript runs a script in a cell that may write single files.
func runScript(t *testing.T, script string, prepare func(c *celltest.Cell)) string {
	t.Helper()
	c := celltest.New(t, "/bin/sh", "-c", "exec 2>&1\n"+script)
	prepare(c)
	out, r := c.Run()
	if r.ExitCode != 0 {
		t.Errorf("the script ended with %d: %s", r.ExitCode, out)
	}
	return out
}

func put(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
	}
}

// A granted file is an ordinary entry of a directory that shows nothing of the
// host's: it is written, replaced by rename and removed, in the layer alone (L8).
func TestFileIsReplacedByRename(t *testing.T) {
	var dir, layer string
	out := runScript(t, `cd "$(cat /home/agent/dir 2>/dev/null || echo /nowhere)" || exit 1
ls -A; cat one
echo edited >.one.tmp && mv .one.tmp one && cat one
sed -i s/two/TWO/ two; cat two; cat sub/inside; echo x 2>/dev/null >sub/new && exit 3
rm gone; ls -A; ln one other; exit 0`, func(c *celltest.Cell) {
		dir = c.Make("tree")
		for _, name := range []string{"one", "two", "gone", "beside", "sub/inside"} {
			put(t, filepath.Join(dir, name), name+"\n")
		}
		layer = c.WritableFile(filepath.Join(dir, "one"))
		c.WritableFile(filepath.Join(dir, "two"))
		c.WritableFile(filepath.Join(dir, "gone"))
		c.ReadOnly(filepath.Join(dir, "sub"))
		c.Spec.Files = append(c.Spec.Files, cell.File{Path: "/etc/where", Content: []byte(dir)})
		c.Spec.Argv[2] = strings.Replace(c.Spec.Argv[2], "/home/agent/dir", "/etc/where", 1)
	})
	want := "gone\none\nsub\ntwo\none\nedited\nTWO\nsub/inside\none\nsub\ntwo\n"
	if out != want {
		t.Errorf("the agent saw\n%s\nwant\n%s", out, want)
	}
	for _, name := range []string{"one", "two", "gone", "beside", "sub/inside"} {
		holds(t, filepath.Join(dir, name), name+"\n")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 5 {
		t.Errorf("the host's directory has %v, %v", entries, err)
	}
	holds(t, filepath.Join(layer, "lower/one"), "one\n")
	if st, err := os.Lstat(filepath.Join(layer, "upper/gone")); err != nil || st.Mode().Type() != os.ModeDevice|os.ModeCharDevice {
		t.Errorf("the removed file is no whiteout: %v, %v", st, err)
	}
}

// Where another grant shows the directory it stays as that grant is: the file is
// written in place, and neither it nor what is beside it can be moved.
func TestFileBelowReadOnlyIsWrittenInPlace(t *testing.T) {
	var dir, layer string
	out := runScript(t, `cd "$(cat /etc/where)" || exit 1
cat in/file; echo more >>in/file && cat in/file; ls -A in /.skep/files
for try in 'mv in/file in/x' 'mv in/beside in/file' 'rm -f in/file' 'echo >in/.tmp' 'echo >in/beside'; do
	sh -c "$try" 2>/dev/null && echo "done: $try"
done
: >in/file; exit 0`, func(c *celltest.Cell) {
		dir = c.Make("tree")
		put(t, filepath.Join(dir, "in/file"), "file\n")
		put(t, filepath.Join(dir, "in/beside"), "beside\n")
		c.ReadOnly(dir)
		layer = c.WritableFile(filepath.Join(dir, "in/file"))
		c.Spec.Files = append(c.Spec.Files, cell.File{Path: "/etc/where", Content: []byte(dir)})
	})
	if want := "file\nfile\nmore\n/.skep/files:\n\nin:\nbeside\nfile\n"; out != want {
		t.Errorf("the agent saw\n%s\nwant\n%s", out, want)
	}
	holds(t, filepath.Join(dir, "in/file"), "file\n")
	holds(t, filepath.Join(layer, "upper/file"), "")
}

// A file is an exception in a hidden place, whether the place is its own directory
// or one above it; the rest of the place stays hidden, and where it is.
func TestFileInHiddenPlace(t *testing.T) {
	var dir string
	out := runScript(t, `cd "$(cat /etc/where)" || exit 1
ls -A hidden hidden/deep; echo new >hidden/deep/.t && mv hidden/deep/.t hidden/deep/file
echo new >hidden/.t && mv hidden/.t hidden/file; cat hidden/file hidden/deep/file
for try in 'mv hidden away' 'mv hidden/deep hidden/x' 'rmdir hidden/deep' 'cat hidden/secret' 'cat hidden/deep/secret'; do
	sh -c "$try" 2>/dev/null && echo "done: $try"
done; exit 0`, func(c *celltest.Cell) {
		dir = c.Make("tree")
		for _, name := range []string{"hidden/deep/file", "hidden/deep/secret", "hidden/secret", "hidden/file"} {
			put(t, filepath.Join(dir, name), "old\n")
		}
		c.Writable(dir)
		c.Spec.Narrow = []cell.Narrow{{Path: filepath.Join(dir, "hidden"), Kind: cell.Hidden}}
		c.WritableFile(filepath.Join(dir, "hidden/deep/file"))
		c.WritableFile(filepath.Join(dir, "hidden/file"))
		c.Spec.Files = append(c.Spec.Files, cell.File{Path: "/etc/where", Content: []byte(dir)})
	})
	if want := "hidden:\ndeep\nfile\n\nhidden/deep:\nfile\nnew\nnew\n"; out != want {
		t.Errorf("the agent saw\n%s\nwant\n%s", out, want)
	}
	holds(t, filepath.Join(dir, "hidden/file"), "old\n")
	holds(t, filepath.Join(dir, "hidden/deep/file"), "old\n")
}

// Directories that the cell has for itself are never replaced by a file's place.
func TestFileInDirectoryOfTheCell(t *testing.T) {
	var file string
	out := runScript(t, `cat "$(cat /etc/where)"; echo more >>"$(cat /etc/where)"; echo own >/tmp/own; cat /etc/hostname; ls -A /tmp | wc -l`,
		func(c *celltest.Cell) {
			f, err := os.CreateTemp("/tmp", "skep-file")
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			file = f.Name()
			t.Cleanup(func() { _ = os.Remove(file) })
			put(t, file, "host\n")
			c.WritableFile(file)
			c.Spec.Files = append(c.Spec.Files, cell.File{Path: "/etc/where", Content: []byte(file)})
		})
	if !strings.HasPrefix(out, "host\ncell\n") {
		t.Errorf("the agent saw %q", out)
	}
	holds(t, file, "host\n")
}
