package place

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) string { return m[k] }
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name               string
		in                 Input
		state, run, config string
	}{
		{"plain user", Input{UID: 1000, Home: "/home/ada"},
			"/home/ada/.local/state/skep", "/tmp/skep-1000", "/home/ada/.config/skep/config.yaml"},
		{"root", Input{Home: "/home/r"}, "/home/r/.local/state/skep", "/run/skep", "/home/r/.config/skep/config.yaml"},
		{"XDG", Input{UID: 1000, Home: "/home/ada", Getenv: env("XDG_STATE_HOME", "/s", "XDG_RUNTIME_DIR", "/r", "XDG_CONFIG_HOME", "/c")},
			"/s/skep", "/r/skep", "/c/skep/config.yaml"},
		{"relative XDG is ignored", Input{UID: 1000, Home: "/home/ada", Getenv: env("XDG_STATE_HOME", "s", "XDG_RUNTIME_DIR", "r", "XDG_CONFIG_HOME", "c")},
			"/home/ada/.local/state/skep", "/tmp/skep-1000", "/home/ada/.config/skep/config.yaml"},
		{"variables", Input{UID: 1000, Home: "/home/ada", Getenv: env("SKEP_STATE", "/vs/", "SKEP_RUN", "/vr", "XDG_STATE_HOME", "/s")},
			"/vs", "/vr", "/home/ada/.config/skep/config.yaml"},
		{"flags before variables", Input{UID: 1000, Home: "/home/ada", StateFlag: "/fs", RunFlag: "/fr", Getenv: env("SKEP_STATE", "/vs", "SKEP_RUN", "/vr")},
			"/fs", "/fr", "/home/ada/.config/skep/config.yaml"},
		{"package", Input{UID: 990, Packaged: true}, "/var/lib/skep", "/run/skep", ""},
	} {
		p, err := Find(c.in)
		if err != nil || p.State != c.state || p.Run != c.run || p.Config != c.config {
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
	}
	for _, in := range []Input{{UID: 7}, {UID: 7, Home: "/h", StateFlag: "rel"}, {UID: 7, Home: "/h", Getenv: env("SKEP_RUN", "rel")}} {
		if p, err := Find(in); err == nil {
			t.Errorf("%+v gives %+v", in, p)
		}
	}
}

func TestPrivateMakes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "skep")
	for range 2 { // made, then found again
		if err := Private(dir, os.Getuid()); err != nil {
			t.Fatal(err)
		}
	}
	fi, err := os.Lstat(dir)
	if err != nil || fi.Mode() != os.ModeDir|0o700 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

// Each way in which somebody else could own or replace the directory is refused.
func TestPrivateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		uid     int
		want    string
	}{
		"a symlink": {func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir+"-real", 0o700))
			must(t, os.Symlink(dir+"-real", dir))
		}, os.Getuid(), "is a symlink to"},
		"a file":              {func(t *testing.T, dir string) { must(t, os.WriteFile(dir, nil, 0o600)) }, os.Getuid(), "not a directory"},
		"open to others":      {func(t *testing.T, dir string) { must(t, os.Mkdir(dir, 0o700)); must(t, os.Chmod(dir, 0o750)) }, os.Getuid(), "chmod 700"},
		"another's":           {func(t *testing.T, dir string) { must(t, os.Mkdir(dir, 0o700)) }, os.Getuid() + 1, "belongs to user"},
		"in a public one":     {func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Dir(dir), 0o777)) }, os.Getuid(), "anybody may write"},
		"below a public path": {func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o777)) }, os.Getuid(), "anybody may write"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := filepath.Join(t.TempDir(), "p", "q")
			must(t, os.MkdirAll(parent, 0o700))
			dir := filepath.Join(parent, "skep")
			c.prepare(t, dir)
			err := Private(dir, c.uid)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// /tmp is public but sticky: nobody can replace what is ours in it.
func TestStickyParentPasses(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "tmp")
	must(t, os.Mkdir(parent, 0o700))
	must(t, os.Chmod(parent, os.ModeSticky|0o777))
	must(t, Places{State: filepath.Join(parent, "s"), Run: filepath.Join(parent, "r"), uid: os.Getuid()}.Ensure())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
