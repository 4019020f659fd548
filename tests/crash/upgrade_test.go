package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// put puts a program in the place of another, as a package manager does; nil takes it away.
func (r *rig) put(name string, content []byte) {
	r.t.Helper()
	path := filepath.Join(r.programs, name)
	err := os.Remove(path)
	if os.IsNotExist(err) {
		err = nil
	}
	if content != nil && err == nil {
		if err = os.WriteFile(path+".new", content, 0o755); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// one is the only process of a kind.
func (r *rig) one(k kind) *process {
	r.t.Helper()
	all := r.processes().of(k)
	if len(all) != 1 {
		r.t.Fatalf("there are %d of %s", len(all), k)
	}
	return all[0]
}

func (r *rig) files(p *process) int {
	r.t.Helper()
	fds, err := os.ReadDir("/proc/" + strconv.Itoa(p.pid) + "/fd")
	if err != nil {
		r.t.Fatal(err)
	}
	return len(fds)
}

// begun is a run of an agent that waits for a file, and the id of its cell.
func (r *rig) begun(budget string) (*started, string) {
	r.t.Helper()
	profile := r.Beside("p.yaml", "version: v1\npaths: [{path: "+r.Tree+", rights: rw}, {path: /usr, rights: ro}, {path: /bin, rights: ro}, {path: /lib, rights: ro}, {path: /lib64, rights: ro}]\n"+budget)
	before := r.list()
	s := r.start("run", "--yes", "--quiet", "--profile", profile, "--", "/bin/sh", "-c", "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done", r.programs)
	id := ""
	r.await("the cell to run", func() bool {
		for _, c := range r.list() {
			if c.running() && len(r.list()) > len(before) {
				id = c.ID
			}
		}
		return id != "" && s.out.String() != ""
	})
	return s, id
}

// counts demands that the agent's output goes on, with no number missing.
func (r *rig) counts(s *started) {
	r.t.Helper()
	n := len(s.out.String())
	r.await("more output", func() bool { return len(s.out.String()) > n+20 || s.ended() })
	lines := strings.Split(s.out.String(), "\n")
	for i, line := range lines[:len(lines)-1] {
		if line != strconv.Itoa(i+1) {
			r.t.Fatalf("line %d of the output is %q", i+1, line)
		}
	}
}

// A replacement that fails, by whatever program, is told and changes nothing.
func TestFailedUpgradeChangesNothing(t *testing.T) {
	r := set(t)
	s, id := r.begun("")
	programs := map[string][]byte{}
	for _, name := range []string{"skepd", "skep-worker", "skep-box"} {
		content, err := os.ReadFile(filepath.Join(r.programs, name))
		if err != nil {
			t.Fatal(err)
		}
		programs[name] = content
	}
	part := map[string]string{"skepd": "skepd", "skep-worker": "worker", "skep-box": "boxes"}
	before := map[kind]int{}
	for _, k := range []kind{daemon, worker, warden} {
		before[k] = r.one(k).pid
	}
	for name, content := range programs {
		for how, bad := range map[string][]byte{"missing": nil, "one that exits at once": []byte("#!/bin/sh\nexit 0\n"), "none at all": []byte("nothing")} {
			r.put(name, bad)
			u := r.start("upgrade", "--only", part[name])
			if code := u.wait(t); code != 1 || !strings.Contains(u.err.String(), "nothing has changed") {
				t.Errorf("%s is %s: the upgrade ended with %d\n%s%s", name, how, code, u.out.String(), u.err.String())
			}
			r.put(name, content)
			r.counts(s)
		}
	}
	for k, pid := range before {
		if now := r.one(k).pid; now != pid {
			t.Errorf("%s was process %d, and is %d", k, pid, now)
		}
	}
	r.skep("upgrade")
	r.counts(s)
	r.skep("stop", "--grace", "1ms", id)
	if code := s.wait(t); code != 128+15 && code != 128+9 {
		t.Errorf("the run ended with %d", code)
	}
	r.rest()
	r.recorded()
	r.verify()
	r.left()
}

// However often everything is replaced, no program holds more than before, no process is
// left, and the agent's output is whole.
func TestManyUpgradesHoldNothing(t *testing.T) {
	r := set(t)
	s, id := r.begun("")
	r.skep("upgrade")
	first := map[kind]int{}
	for _, k := range []kind{daemon, worker} {
		first[k] = r.files(r.one(k))
	}
	for range 50 {
		if _, ok := r.skep("upgrade"); !ok {
			break
		}
	}
	r.counts(s)
	for k, n := range first {
		r.await(fmt.Sprintf("%s to hold no more than %d files", k, n), func() bool { return r.files(r.one(k)) <= n+3 })
	}
	r.await("the boxes of before to end", func() bool { return len(r.processes().of(liveBox))+len(r.processes().of(spareBox)) <= 2 })
	r.skep("stop", "--grace", "1ms", id)
	s.wait(t)
	r.rest()
	r.recorded()
	r.verify()
	r.left()
}

// What ends a cell by time is counted from its begin, whoever counts.
func TestWallBudgetOutlivesAnUpgrade(t *testing.T) {
	r := set(t)
	begin := time.Now()
	s, id := r.begun("budget: {wall: 4s}\n")
	r.skep("upgrade")
	r.skep("upgrade", "--only", "skepd")
	r.counts(s)
	if code := s.wait(t); code != 124 {
		t.Errorf("the run ended with %d\n%s", code, s.err.String())
	}
	if took := time.Since(begin); took < 3*time.Second || took > 20*time.Second {
		t.Errorf("it ended after %s", took)
	}
	for _, c := range r.list() {
		if c.ID == id && c.Cause != "budget: wall" {
			t.Errorf("it ended by %q", c.Cause)
		}
	}
	r.rest()
	r.recorded()
	r.verify()
	r.left()
}

// A skepd that cannot read what was left says why, ends the cells by their wardens, and
// serves.
func TestSkepdThatCannotGoOnEndsTheCells(t *testing.T) {
	r := set(t)
	s, id := r.begun("")
	pid := r.one(daemon).pid
	real := filepath.Join(r.programs, "real")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"skep", "skepd", "skep-worker", "skep-warden", "skep-box", "skep-model"} {
		if err := os.Link(filepath.Join(r.programs, name), filepath.Join(real, name)); err != nil {
			t.Fatal(err)
		}
	}
	r.put("skepd", []byte(`#!/bin/sh
n=$#
while [ $n -gt 0 ]; do
	this=$1
	shift
	[ "$last" = --inherits ] && this=999
	last=$this
	set -- "$@" "$this"
	n=$((n-1))
done
exec `+real+`/skepd "$@"
`))
	u := r.start("upgrade", "--only", "skepd")
	if code := u.wait(t); code != 1 || !strings.Contains(u.err.String(), "could not go on with the running cells") {
		t.Errorf("the upgrade ended with %d\n%s%s", code, u.out.String(), u.err.String())
	}
	if code := s.wait(t); code != 125 {
		t.Errorf("the run ended with %d\n%s", code, s.err.String())
	}
	if now := r.one(daemon).pid; now != pid {
		t.Errorf("skepd was process %d, and is %d", pid, now)
	}
	for _, c := range r.list() {
		if c.ID == id && c.Cause != "daemon-died" {
			t.Errorf("the cell ended by %q", c.Cause)
		}
	}
	r.rest()
	r.recorded()
	r.verify()
	r.left()
}

// A merge that is under way keeps skepd from being replaced, which is told, and goes on.
func TestMergeKeepsSkepdFromBeingReplaced(t *testing.T) {
	r := set(t)
	out, ok := r.skep("run", "--yes", "--detach", "--", "/bin/sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo $i >f$i; i=$((i+1)); done", r.programs)
	if !ok {
		t.FailNow()
	}
	id := strings.TrimSpace(out)
	r.await("the end of the cell", func() bool {
		r.list()
		return r.cells[id].ended()
	})
	shown, _ := r.skep("diff", "--json", id)
	var d struct{ Hash string }
	if err := json.Unmarshal([]byte(shown), &d); err != nil {
		t.Fatal(err)
	}
	m := r.start("merge", id, d.Hash)
	held := r.await("the plan of the merge", func() bool {
		_, err := os.Stat(r.state("cells", id, "merge-plan"))
		return err == nil || m.ended()
	})
	if !held || m.cmd.Process.Signal(syscall.SIGSTOP) != nil || m.ended() {
		t.Fatalf("there is no merge to hold: %s%s", m.out.String(), m.err.String())
	}
	u := r.start("upgrade", "--only", "skepd")
	if code := u.wait(t); code != 1 || !strings.Contains(u.err.String(), "a merge of cell "+id+" is under way") {
		t.Errorf("the upgrade ended with %d\n%s%s", code, u.out.String(), u.err.String())
	}
	r.list() // skepd answers
	if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := m.wait(t); code != 0 {
		t.Errorf("the merge ended with %d\n%s%s", code, m.out.String(), m.err.String())
	}
	r.skep("upgrade")
	r.verify()
}
