package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLoadTakesTheFirst(t *testing.T) {
	user := write(t, "config.yaml", "targets: {mine: {script: a.yaml}}")
	system := write(t, "config.yaml", "targets: {theirs: {script: /b.yaml}}")
	absent := filepath.Join(t.TempDir(), "absent.yaml")
	for _, c := range []struct {
		files []string
		want  string
	}{{[]string{user, system}, "mine"}, {[]string{absent, system}, "theirs"}, {[]string{"", system}, "theirs"}} {
		got, err := Load(c.files...)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := got.Target(c.want); !ok || len(got.Targets) != 1 {
			t.Errorf("%v: %+v", c.files, got.Targets)
		}
	}
	if got, err := Load(absent); err != nil || len(got.Targets) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A ceiling that is there and cannot be used is never taken for an absent one.
func TestCeilingFailsClosed(t *testing.T) {
	if c, err := LoadCeiling(filepath.Join(t.TempDir(), "absent.yaml")); err != nil || c.Limited {
		t.Errorf("%+v, %v", c, err)
	}
	c, err := LoadCeiling(write(t, "ceiling.yaml", "denny: []"))
	var faults Faults
	if c != nil || !errors.As(err, &faults) || len(faults) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, file := range []string{"/absent", write(t, "cred", "no colon\n"), write(t, "cred2", "a:b\nc:d\n")} {
		if c, err := LoadCeiling(write(t, "ceiling.yaml", "proxy: {url: \"http://a.example:1\", credential: \"file:"+file+"\"}")); c != nil || err == nil {
			t.Errorf("%s: %+v, %v", file, c, err)
		}
	}
	if c, err := LoadCeiling(write(t, "ceiling.yaml", "proxy: {url: \"http://a.example:1\", credential: \"file:"+write(t, "cred", "a:b\n")+"\"}")); err != nil || c.Proxy.Auth != "a:b" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := LoadCeiling(t.TempDir()); c != nil || err == nil { // a directory
		t.Errorf("%+v, %v", c, err)
	}
}
