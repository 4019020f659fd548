package cgroups

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A hybrid host: controllers bound to version 1, and a version 2 mount beside them.
func TestHierarchiesOfAHybridHost(t *testing.T) {
	got, err := mounted(write(t, `31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
33 24 0:29 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
34 24 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
35 24 0:31 / /tmp rw - tmpfs tmpfs rw
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []hierarchy{
		{at: "/sys/fs/cgroup/cpu,cpuacct", key: "cpu", controllers: []string{"cpu", "cpuacct"}},
		{at: "/sys/fs/cgroup/memory", key: "memory", controllers: []string{"memory"}},
		{at: "/sys/fs/cgroup/unified", unified: true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(hierarchy{})); diff != "" {
		t.Error(diff)
	}
}

func TestMembershipHasEveryController(t *testing.T) {
	got, err := membership(write(t, "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/user.slice\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"memory": "/a/b", "cpu": "/", "cpuacct": "/", "": "/user.slice"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A parent is made below this process's own group, and only there.
func TestParentStandsBelowOurOwnGroup(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "ours"), 0o700); err != nil {
		t.Fatal(err)
	}
	h := hierarchy{at: root, key: "memory", controllers: []string{"memory"}}
	for range 2 { // the second start finds the first one's
		p, err := h.make("/ours")
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Flag(7); got != "7:v1:memory" {
			t.Errorf("flag %q", got)
		}
		Close([]Parent{*p})
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 1 || entries[0].Name() != "ours" {
		t.Errorf("something else was made: %v %v", entries, err)
	}
	if _, err := h.make("/absent"); err == nil {
		t.Error("a group that does not exist got a child")
	}
}

// What an earlier start left below another group is found by the cell's name, and
// what another daemon has there is not touched.
func TestLeftGroupsAreFoundByTheirCell(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"ours/skep/a", "session-1/skep/a", "session-2/deep/skep/b", "session-3/skep/c", "session-4/other/a"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h := hierarchy{at: root, key: "memory", controllers: []string{"memory"}}
	found := h.left([]string{"a", "b"}, []string{filepath.Join(root, "ours/skep")})
	defer Close(found)
	var got []string
	for i, p := range found {
		got = append(got, p.Dir.Name())
		if flag := p.Flag(7 + i); !p.Left || !strings.HasSuffix(flag, ":left:") {
			t.Errorf("a parent of an earlier start is named %s", flag)
		}
	}
	want := []string{filepath.Join(root, "session-1/skep"), filepath.Join(root, "session-2/deep/skep")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
