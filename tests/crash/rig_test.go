package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/journey"
)

// patience bounds what may take long only because the machine is loaded.
const patience = 40 * time.Second

// rig is a person whose programs are her own copies.
type rig struct {
	*journey.Person
	t        *testing.T
	programs string
	disk     string // the state directory, where it is not in its usual place
	temp     string // the TMPDIR of her commands
	records  map[string]string
	cells    map[string]cell // all that there ever were
	met      map[int]uint64  // processes that were ours, and when each began
	told     map[string]bool // faults that stay, so that each is reported once
}

// cell is what `skep ps --json` says.
type cell struct {
	ID    string   `json:"id"`
	Name  string   `json:"name"`
	State string   `json:"state"`
	Argv  []string `json:"argv"`
	Cause string   `json:"cause"`
	Exit  int      `json:"exit_code"`
}

func (c cell) running() bool { return c.State == "running" }

func (c cell) ended() bool {
	switch c.State {
	case "stopped", "failed", "merged", "dropped":
		return true
	}
	return false
}

// hasLayer tells whether what it wrote can be read.
func (c cell) hasLayer() bool { return c.State == "stopped" }

func set(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, programs: journey.Directory(t), records: map[string]string{}, cells: map[string]cell{}, met: map[int]uint64{}, told: map[string]bool{}}
	for _, name := range []string{"skep", "skepd", "skep-worker", "skep-warden", "skep-box", "skep-model"} {
		content, err := os.ReadFile(testlab.Built(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.programs, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SKEP_BIN", r.programs)
	r.Person = journey.New(t)
	r.temp = filepath.Join(r.Dir, "tmp")
	if err := os.Mkdir(r.temp, 0o700); err != nil {
		t.Fatal(err)
	}
	r.Env = append(r.Env, "TMPDIR="+r.temp)
	r.Script("- {reply: {text: done}}\n", "coder")
	return r
}

func (r *rig) state(parts ...string) string {
	at := filepath.Join(r.Dir, "state")
	if r.disk != "" {
		at = r.disk
	}
	return filepath.Join(append([]string{at}, parts...)...)
}

func (r *rig) run(parts ...string) string {
	return filepath.Join(append([]string{r.Dir, "run"}, parts...)...)
}

func (r *rig) processes() table { return processes(r.t, r.programs, r.met) }

// started is a command of hers that has not ended.
type started struct {
	args     []string
	cmd      *exec.Cmd
	out, err buffer
	done     chan struct{}
}

// start runs skep beside the test. It is killed if it does not end.
func (r *rig) start(args ...string) *started {
	r.t.Helper()
	return r.command(filepath.Join(r.programs, "skep"), args...)
}

func (r *rig) command(program string, args ...string) *started {
	r.t.Helper()
	s := &started{args: args, cmd: exec.Command(program, args...), done: make(chan struct{})}
	s.cmd.Dir, s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = r.Tree, r.Env, &s.out, &s.err
	s.cmd.WaitDelay = time.Second
	if err := s.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	return s
}

func (s *started) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// wait returns how it ended: -1 by a signal.
func (s *started) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		<-s.done
		t.Errorf("skep %s hangs\n%s%s", strings.Join(s.args, " "), s.out.String(), s.err.String())
	}
	return s.cmd.ProcessState.ExitCode()
}

// try is a command that has to succeed if anything works.
func (r *rig) skep(args ...string) (string, bool) {
	r.t.Helper()
	s := r.start(args...)
	if code := s.wait(r.t); code != 0 {
		r.t.Errorf("skep %s ended with %d\n%s%s", strings.Join(args, " "), code, s.out.String(), s.err.String())
		return s.out.String(), false
	}
	return s.out.String(), true
}

// list is all cells.
func (r *rig) list() []cell {
	r.t.Helper()
	out, ok := r.skep("ps", "--all", "--json")
	if !ok {
		r.t.FailNow()
	}
	var all []cell
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var c cell
		err := d.Decode(&c)
		if err != nil {
			if d.More() {
				r.t.Fatalf("skep ps --json: %v\n%s", err, out)
			}
			return all
		}
		all = append(all, c)
		r.cells[c.ID] = c
	}
}

// await asks until holds says yes; each answer may cost a walk of /proc.
func (r *rig) await(what string, holds func() bool) bool {
	r.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if holds() {
			return true
		}
	}
	r.t.Errorf("waited %s for %s", patience, what)
	return false
}

// entries reads the whole ledger and demands that all that was read before is there.
func (r *rig) entries() map[string][]entry {
	r.t.Helper()
	out, _ := r.skep("ledger", "show", "--json")
	now := map[string]string{}
	byCell := map[string][]entry{}
	for line := range strings.Lines(out) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			r.t.Fatalf("an entry of the ledger: %v\n%s", err, line)
		}
		key := e.Cell + "/" + e.Seq
		if now[key] != "" {
			r.t.Errorf("entry %s is there twice", key)
		}
		now[key] = line
		byCell[e.Cell] = append(byCell[e.Cell], e)
	}
	for key, line := range r.records {
		if now[key] != line {
			r.t.Errorf("entry %s was read once and is lost or altered:\n%s%s", key, line, now[key])
		}
	}
	r.records = now
	return byCell
}

// entry is what a test asks of one.
type entry struct {
	Cell, Seq, Kind string
	Body            struct {
		Cause, Detail, Proposal string
		Undo                    bool
	}
}

// verify proves the ledger: valid, or valid with a tail that is not sealed yet (D8).
func (r *rig) verify() {
	r.t.Helper()
	s := r.start("ledger", "verify")
	if code := s.wait(r.t); code != 0 && code != 11 {
		r.t.Errorf("skep ledger verify ended with %d: %s%s", code, s.out.String(), s.err.String())
	}
}

// content is everything of the host's tree that a person could find changed.
func (r *rig) content() string {
	r.t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(r.Tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&all, "%s %s %d:%d", strings.TrimPrefix(path, r.Tree), info.Mode(), st.Uid, st.Gid)
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&all, " %q", content)
		}
		all.WriteByte('\n')
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatal(err)
	}
	return all.String()
}

// unchanged demands that the tree is as it was.
func (r *rig) unchanged(before string) {
	r.t.Helper()
	if now := r.content(); now != before {
		r.t.Errorf("the tree of the host changed:\n%s", difference(before, now))
	}
	if status := r.Git("status", "--porcelain", "--ignored"); status != "" {
		r.t.Errorf("git status: %s", status)
	}
}

// difference lists the lines of only one of two texts.
func difference(a, b string) string {
	var out strings.Builder
	for _, side := range []struct{ mark, these, those string }{{"- ", a, b}, {"+ ", b, a}} {
		for line := range strings.Lines(side.these) {
			if !strings.Contains(side.those, line) {
				out.WriteString(side.mark + line)
			}
		}
	}
	return out.String()
}
