package furniture

import (
	"slices"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	a, b := Files("box", 1000, 1001, []byte("TZif2")), Files("box", 1000, 1001, nil)
	content := map[string]string{}
	for _, f := range a {
		content[f.Path] = string(f.Content)
	}
	for path, want := range map[string]string{
		"/etc/passwd":        "agent:x:1000:1001:agent:/home/agent:/bin/sh\n",
		"/etc/group":         "agent:x:1001:\n",
		"/etc/hosts":         "127.0.0.1 localhost box\n",
		"/etc/resolv.conf":   "nameserver 100.127.255.253\n",
		"/etc/nsswitch.conf": "hosts: files dns\n",
		"/etc/hostname":      "box\n",
		"/etc/localtime":     "TZif2",
	} {
		if !strings.Contains(content[path], want) {
			t.Errorf("%s holds %q", path, content[path])
		}
	}
	if len(b) != len(a)-1 {
		t.Error("a host without a zone still has the file")
	}
	for _, f := range b {
		if f.Path == "/etc/machine-id" && (string(f.Content) == content[f.Path] || len(f.Content) != 33) {
			t.Errorf("two cells have the machine id %q", f.Content)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SKEP_CANARY", "leak")
	env := Environment(map[string]string{"TERM": "xterm", "HOME": "/elsewhere"}, map[string]string{"CI": "1", "TERM": "dumb"}, map[string]string{"GH_TOKEN": "skep-secret-gh-01234567"})
	for name, want := range map[string]string{
		"TERM": "dumb", "CI": "1", "GH_TOKEN": "skep-secret-gh-01234567", "HOME": "/elsewhere", "PATH": Path, "USER": "agent", "TMPDIR": "/tmp", "SKEP_CANARY": "",
	} {
		if got := Lookup(env, name); got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
	if !slices.IsSorted(env) {
		t.Error("the order is not the same each time")
	}
}
