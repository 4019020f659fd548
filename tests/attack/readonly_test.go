package attack

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestReadOnlyGrantsKeepEverything: contents, names and metadata, though the files
// are the agent's own and open to all (L8).
func TestReadOnlyGrantsKeepEverything(t *testing.T) {
	c := celltest.New(t)
	shown, free, beside := c.Make("shown"), t.TempDir(), t.TempDir()
	for _, dir := range []string{shown, free} {
		fill(t, dir)
	}
	c.ReadOnly(shown)
	attack{technique: "readonly", outside: []string{free, beside}, inside: []string{shown, c.Work}}.run(t, c)
	if got, err := os.ReadFile(filepath.Join(shown, "a")); err != nil || string(got) != "a\n" {
		t.Errorf("the file is %q, %v", got, err)
	}
}

// fill makes the files of the attack, as the agent's own where we can.
func fill(t *testing.T, dir string) {
	t.Helper()
	write(t, filepath.Join(dir, "a"), "a\n", 0o666)
	write(t, filepath.Join(dir, "b"), "b\n", 0o666)
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o777); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		return
	}
	id := agentOnHost(t)
	for _, p := range []string{"", "a", "b", "d"} {
		if err := os.Chown(filepath.Join(dir, p), id, id); err != nil {
			t.Fatal(err)
		}
	}
}

// agentOnHost is the id that root's agents have on the host: the thousandth of the
// range that the daemon's user was given.
func agentOnHost(t *testing.T) int {
	t.Helper()
	f, err := os.Open("/etc/subuid")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "skep:"); ok {
			first, _, _ := strings.Cut(rest, ":")
			start, err := strconv.Atoi(first)
			if err != nil {
				t.Fatal(err)
			}
			return start + 1000
		}
	}
	t.Skip("the user skep has no range in /etc/subuid: run scripts/system-user")
	return 0
}
