package crash

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// knocks goes through the boundary again and again, and says how that went.
const knocks = `while :; do
  if timeout 5 bash -c 'exec 3<>/dev/tcp/open.example.org/7000 && read -r -u 3 line && [ -n "$line" ]' 2>/dev/null
  then echo came; else echo refused; fi
  sleep 0.02
done`

// TestFullDisk fills the file system of the state under a running cell: nothing crosses
// that cannot be recorded, what ends is recorded, and with space all works again (D4, I04).
func TestFullDisk(t *testing.T) { testlab.Test(t, fullDisk) }

func fullDisk(t *testing.T, lab *testlab.Lab) {
	t.Setenv("TMPDIR", lab.Dir())
	lab.Host("open.example.org", "93.184.216.34")
	lab.Greet("93.184.216.34:7000", "hello\n")
	r := set(t)
	r.disk = filepath.Join(lab.SmallDisk(), "state")
	r.Env = append(r.Env, "SKEP_STATE="+r.disk)
	profile := r.Beside("net.yaml", "version: v1\npaths:\n  - {path: "+r.Tree+", rights: rw}\n"+
		"  - {path: /usr, rights: ro}\n  - {path: /bin, rights: ro}\n  - {path: /lib, rights: ro}\n  - {path: /lib64, rights: ro}\n"+
		"net:\n  - {name: open.example.org, ports: [7000], transports: [tcp]}\n")

	agent := r.start("run", "--yes", "--name", "knocks", "--profile", profile, "--", "/usr/bin/bash", "-c", knocks)
	r.hears(agent, "came", 2)
	full := filepath.Join(lab.SmallDisk(), "full")
	fill(t, full)
	r.hears(agent, "refused", 3)
	before := len(lab.Connections())
	r.hears(agent, "refused", 5)
	if n := len(lab.Connections()) - before; n > 0 {
		t.Errorf("%d connections were made that nobody could record", n)
	}
	if denied, _ := r.skep("ledger", "show", "knocks", "--json", "--decision", "deny"); !strings.Contains(denied, "record-unavailable") {
		t.Errorf("no denial says record-unavailable:\n%s", denied)
	}
	if c := r.named("knocks"); !c.running() {
		t.Errorf("the cell is %s by %q", c.State, c.Cause)
	}
	s := r.start("run", "--yes", "--quiet", "--", "/bin/true")
	if code := s.wait(t); code != 125 {
		t.Errorf("a cell was started that could not be recorded: %d\n%s", code, s.err.String())
	}
	t.Logf("skep run on a full disk says: %s", s.err.String())

	fill(t, full+"2")
	fill(t, full+"3")
	r.skep("stop", "knocks")
	agent.wait(t)
	if c := r.named("knocks"); !c.ended() {
		t.Errorf("after stop the cell is %s by %q", c.State, c.Cause)
	}
	ended, _ := r.skep("ledger", "show", "knocks", "--json", "--kind", "cell.stopped")
	if !strings.Contains(ended, `"cause":"operator"`) {
		t.Errorf("the end was not recorded on a full disk:\n%s", ended)
	}
	if said, ok := r.skep("drop", "knocks"); !ok {
		t.Errorf("a full disk refuses what would free it: %s", said)
	}
	if c := r.named("knocks"); c.State != "dropped" {
		t.Errorf("after drop the cell is %s", c.State)
	}
	r.verify()

	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	r.await("skepd to work again", func() bool {
		return r.start("run", "--yes", "--quiet", "--", "/bin/true").wait(t) == 0
	})
	r.list()
	r.recorded()
	r.verify()
	r.left()
}

// fill takes all space that is left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for size := 1 << 20; size > 0; {
		n, err := f.Write(bytes.Repeat([]byte{'x'}, size))
		if err == nil && n == size {
			continue
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		size /= 16
	}
}

// hears waits until an agent has said a word so many times more.
func (r *rig) hears(s *started, word string, times int) {
	r.t.Helper()
	said := func() int { return strings.Count(s.out.String(), word) }
	before := said()
	if !r.await("the agent to say "+word, func() bool { return said() >= before+times || s.ended() }) || s.ended() {
		r.t.Fatalf("the agent: %s\n%s", s.out.String(), s.err.String())
	}
}

// buffer is a bytes.Buffer that may be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
