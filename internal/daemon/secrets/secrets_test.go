package secrets

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/secret/listed"
	"skep.dev/skep/internal/secret/parcel"
	"skep.dev/skep/internal/sys"
)

// handed is a bundle as skep makes it for one source.
func handed(t *testing.T, name, path string) *handover.Bundle {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := sys.OpenPath(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	return &handover.Bundle{Roles: []handover.Role{{Role: handover.RoleSecret, Path: name}, {Role: handover.RoleDir, Path: name + "/" + filepath.Base(path)}}, Files: []*os.File{f, dir}}
}

func (c *Cell) value(t *testing.T) (string, error) {
	t.Helper()
	f, fault := c.Read()
	if f == nil {
		t.Fatal(fault)
	}
	defer f.Close()
	got := ""
	err := parcel.Unpack(f, func(_ string, _ time.Time, _ int, from io.Reader) error {
		b, err := io.ReadAll(from)
		got = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, fault
}

// TestSources: what stands at a source is read as long as it is a file of the same owner's
// that nobody else may change and not everybody may read; and a change is noticed.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gh")
	write := func(value string, mode os.FileMode) {
		t.Helper()
		_ = os.RemoveAll(path)
		if err := os.WriteFile(path, []byte(value), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("value-one-1\n", 0o600)
	b := listed.Secret{Binding: secret.Binding{Name: "gh", Source: secret.Source{File: path}, Env: "GH_TOKEN", Hosts: []string{"a.test"}, Ports: []uint16{443}, As: []secret.Place{{Kind: secret.Basic}}}}
	c, err := Take([]listed.Secret{b}, handed(t, "gh", path))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.value(t); err != nil || got != "value-one-1\n" || c.Changed() {
		t.Errorf("%q %v %v", got, err, c.Changed())
	}
	for _, s := range []struct {
		what  string
		spoil func()
		fault string
	}{
		{"another file", func() { write("value-two-2", 0o640) }, ""},
		{"missing", func() { _ = os.Remove(path) }, "no such file"},
		{"readable", func() { write("value-three", 0o604) }, "chmod 600"},
		{"writable", func() { write("value-three", 0o620) }, "chmod 600"},
		{"a directory", func() { _ = os.Remove(path); _ = os.Mkdir(path, 0o700) }, "no regular file"},
		{"a link out", func() { _ = os.RemoveAll(path); _ = os.Symlink("/etc/hostname", path) }, "open the source"},
		{"lines", func() { write("two\nlines-are-none", 0o600) }, "one line"},
		{"back", func() { write("value-four4", 0o600) }, ""},
	} {
		write("value-good1", 0o600)
		if got, err := c.value(t); err != nil || got != "value-good1" {
			t.Errorf("before %s: %q %v", s.what, got, err)
		}
		s.spoil()
		if !c.Changed() {
			t.Errorf("%s is not noticed", s.what)
		}
		got, err := c.value(t)
		if (err == nil) != (s.fault == "") || err != nil && (!strings.Contains(err.Error(), s.fault) || got != "" || strings.Contains(err.Error(), "lines-are")) {
			t.Errorf("%s: %q, %v", s.what, got, err)
		}
	}
	if v := c.Variables()["GH_TOKEN"]; !strings.HasPrefix(v, "skep-secret-gh-") {
		t.Errorf("%q", v)
	}
	git := c.Git()
	if git["GIT_CONFIG_COUNT"] != "1" || git["GIT_CONFIG_KEY_0"] != "credential.https://a.test.helper" || len(c.Git(map[string]string{"GIT_CONFIG_COUNT": "2"})) != 0 {
		t.Errorf("%v", git)
	}
	c.Close()
	if _, err := c.Read(); err == nil || c.Changed() {
		t.Error("a cell that has ended reads on")
	}
	for _, b := range []*handover.Bundle{{}, {Roles: []handover.Role{{Role: handover.RoleSecret, Path: "other"}}, Files: []*os.File{nil}}} {
		if _, err := Take([]listed.Secret{{Binding: secret.Binding{Name: "gh", Source: secret.Source{Env: "X"}}}}, b); err == nil {
			t.Error("a source that nobody handed over is taken")
		}
	}
}
