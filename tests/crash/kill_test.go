package crash

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/tests/journey"
)

// during is what goes on when a program is killed.
type during string

const (
	first    during = "the first start" // no skepd runs
	starting during = "start"
	running  during = "run"
	attended during = "attended run"
	stopping during = "stop"
	diffing  during = "diff"
	dropping during = "drop"
	// every program under a running cell is replaced
	upgrading during = "upgrade"
)

// round is one kill.
type round struct {
	target kind
	during during
	moment string        // which is waited for, "" is none
	delay  time.Duration // after it
}

func (k round) String() string {
	after := k.delay.Round(100 * time.Microsecond).String()
	if k.moment != "" {
		after += " after " + k.moment
	}
	return fmt.Sprintf("%s during %s, %s", k.target, k.during, after)
}

// victims says which program can be killed when.
func victims() map[during][]kind {
	return map[during][]kind{
		first:    {command, daemon, worker, resident, spareBox, half, halfPID1},
		starting: {command, daemon, worker, resident, warden, pid1, agent, liveBox, spareBox, half, halfPID1, model, everything},
		running:  {daemon, worker, resident, warden, pid1, agent, liveBox, spareBox, model, everything},
		attended: {command, daemon, warden, pid1},
		stopping: {command, daemon, worker, warden, pid1, liveBox, everything},
		diffing:  {command, daemon, worker, layer},
		dropping: {command, daemon, worker, layer, everything},

		upgrading: {command, daemon, worker, resident, warden, pid1, agent, liveBox, spareBox, model, everything},
	}
}

// moments are what a cell passes, as the file system shows it: that of id, or else
// the one that was not there before.
func moments(r *rig, before []string, id string) map[string]func() bool {
	newest := func() string {
		if id != "" {
			return id
		}
		for _, name := range names(r, r.state("cells")) {
			if !slices.Contains(before, name) {
				return name
			}
		}
		return ""
	}
	recorded := func(kind string) func() bool {
		return func() bool {
			id := newest()
			journal, _ := filepath.Glob(r.state("ledger", "journal", "*"))
			for _, part := range journal {
				raw, err := os.ReadFile(part)
				if id != "" && err == nil && bytes.Contains(raw, []byte(`"cell":"`+id+`","kind":"`+kind+`"`)) {
					return true
				}
			}
			return false
		}
	}
	return map[string]func() bool{
		"the first file": func() bool { return newest() != "" },
		"the record": func() bool {
			_, err := os.Stat(r.state("cells", newest(), "cell.json"))
			return err == nil && newest() != ""
		},
		"the socket": func() bool {
			_, err := os.Stat(r.run("cells", newest(), "w"))
			return err == nil && newest() != ""
		},
		"the start is recorded": recorded("cell.started"),
		"the end is recorded":   recorded("cell.stopped"), // and not kept or sealed yet
	}
}

// typical is how long each lasts on this machine now, from the first of each.
type typical map[during]time.Duration

// soak tells whether there is time.
func soak() bool { return os.Getenv("SKEP_SOAK") != "" }

func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n, err := strconv.ParseUint(os.Getenv("SKEP_SEED"), 10, 64)
	if err != nil {
		n = 1
	}
	t.Logf("SKEP_SEED=%d", n)
	return rand.New(rand.NewPCG(n, n))
}

// rounds are all pairs of program and occasion, at moments that chance chooses.
func rounds(rng *rand.Rand, lasts typical) []round {
	times := 1
	if soak() {
		times = 6
	}
	var all []round
	for range times {
		for when, who := range victims() {
			for _, k := range who {
				all = append(all, round{target: k, during: when, delay: time.Duration(rng.Float64() * 1.2 * float64(lasts[when]))})
			}
		}
		for _, moment := range []string{"the first file", "the record", "the socket", "the start is recorded"} {
			for _, k := range []kind{daemon, worker} {
				all = append(all, round{target: k, during: starting, moment: moment, delay: time.Duration(rng.IntN(3)) * time.Millisecond})
			}
		}
		all = append(all, round{target: daemon, during: stopping, moment: "the end is recorded"})
		for _, k := range []kind{daemon, worker, liveBox} { // at each of their steps, about
			for i := range 6 {
				all = append(all, round{target: k, during: upgrading, delay: time.Duration(i) * lasts[upgrading] / 5})
			}
		}
	}
	// A map's order is not the seed's.
	slices.SortFunc(all, func(a, b round) int { return strings.Compare(a.String(), b.String()) })
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// most is how many kills a run makes at least, of those that it tries.
func most() int {
	if soak() {
		return 200
	}
	return 40
}

// TestKilledProgramsLeaveNothing kills every program that takes part in a cell's life,
// while it starts, runs, is stopped, compared and dropped (L20, L20a).
func TestKilledProgramsLeaveNothing(t *testing.T) {
	r := set(t)
	before := r.content()
	rng := seed(t)
	lasts := r.measure()
	begin := time.Now()
	killed := 0
	for i, k := range rounds(rng, lasts) {
		if !t.Run(fmt.Sprintf("%03d %s", i, k), func(t *testing.T) {
			outer := r.t
			defer func() { r.t, r.Person = outer, r.With(outer) }()
			r.t, r.Person = t, r.With(t)
			// A machine is not as quick each time: what is missed is tried again, earlier.
			for range 3 {
				done := r.kill(k)
				r.unchanged(before)
				if done {
					killed++
					break
				}
				k.delay /= 3
			}
		}) && os.Getenv("SKEP_CRASH_FIRST") != "" {
			break
		}
	}
	t.Logf("%d kills in %s", killed, time.Since(begin).Round(time.Second))
	if killed < most() {
		t.Errorf("only %d programs were there to be killed", killed)
	}
}

// measure does everything once, unharmed.
func (r *rig) measure() typical {
	r.t.Helper()
	lasts := typical{running: 50 * time.Millisecond, attended: 100 * time.Millisecond}
	id := ""
	for _, d := range []during{first, starting, upgrading, stopping, diffing, dropping} {
		s, token := r.begin(d, id)
		at := time.Now()
		if code := s.wait(r.t); code != 0 {
			r.t.Fatalf("%s, with nothing killed, ended with %d\n%s", d, code, s.err.String())
		}
		lasts[d] = time.Since(at)
		if token != "" {
			id = r.byToken(token).ID
		}
	}
	r.rest()
	r.left()
	r.t.Logf("typical: %v", lasts)
	return lasts
}

// begin starts an occasion and returns its command, and the token of the cell if it
// makes one.
func (r *rig) begin(d during, id string) (*started, string) {
	r.t.Helper()
	token := "token-" + strconv.Itoa(len(r.cells)) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	agent := []string{"--", "/bin/sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > file$((i % 7)); sleep 0.01; done", r.programs + "/" + token}
	run := func(flags ...string) (*started, string) {
		return r.start(append(append([]string{"run", "--yes"}, flags...), agent...)...), token
	}
	switch d {
	case first:
		if err := journey.EndDaemon(r.Dir); err != nil {
			r.t.Error(err)
		}
		return run("--detach")
	case starting:
		return run("--detach")
	case attended:
		return run()
	case stopping:
		return r.start("stop", "--grace", "200ms", id), ""
	case diffing:
		return r.start("diff", id), ""
	case dropping:
		return r.start("drop", id), ""
	case upgrading:
		return r.start("upgrade"), ""
	case running:
	}
	return nil, ""
}

// byToken is the cell whose agent has it.
func (r *rig) byToken(token string) cell {
	for _, c := range r.list() {
		if len(c.Argv) > 0 && filepath.Base(c.Argv[len(c.Argv)-1]) == token {
			return c
		}
	}
	return cell{}
}

// prepare is the cell that an occasion needs: one that runs, or one that ended with a layer.
func (r *rig) prepare(d during) string {
	r.t.Helper()
	switch d {
	case running, stopping, upgrading:
		out, ok := r.begin2(starting)
		if !ok {
			r.t.FailNow()
		}
		return strings.TrimSpace(out)
	case diffing, dropping:
		for _, c := range r.list() {
			if c.hasLayer() {
				return c.ID
			}
		}
		id := r.prepare(stopping)
		r.skep("stop", "--grace", "1ms", id)
		return id
	case first, starting, attended:
	}
	return ""
}

func (r *rig) begin2(d during) (string, bool) {
	s, _ := r.begin(d, "")
	if code := s.wait(r.t); code != 0 {
		r.t.Errorf("skep %s ended with %d\n%s", strings.Join(s.args, " "), code, s.err.String())
		return "", false
	}
	return s.out.String(), true
}

// kill is one round; it tells whether there was something to kill.
func (r *rig) kill(k round) bool {
	r.t.Helper()
	id := r.prepare(k.during)
	r.list() // what has ended by now is not ours
	at := moments(r, names(r, r.state("cells")), id)[k.moment]
	s, _ := r.begin(k.during, id)
	over := func() bool { return s != nil && s.ended() }
	if at != nil {
		r.await(k.moment, func() bool { return over() || at() })
	}
	timer := time.NewTimer(k.delay)
	defer timer.Stop()
	<-timer.C
	var victims []*process
	r.await("a process to kill", func() bool {
		if k.target != command {
			victims = r.processes().of(k.target)
		} else if p := read(s.cmd.Process.Pid); p != nil {
			victims = []*process{p}
		}
		return len(victims) > 0 || over() || s == nil
	})
	done := r.killAll(k, victims)
	if s != nil && k.during != attended {
		s.wait(r.t)
	}
	r.settle(k, done)
	if s != nil && k.during == attended {
		s.wait(r.t)
	}
	return done
}

// killAll kills one process, or all of them, and returns when they are gone.
func (r *rig) killAll(k round, victims []*process) bool {
	r.t.Helper()
	if k.target != everything && len(victims) > 1 {
		victims = victims[:1]
	}
	done := false
	for _, p := range victims {
		done = p.kill(r.t) || done
	}
	for _, p := range victims {
		r.await("the process that was killed to be gone", func() bool {
			now := read(p.pid)
			return now == nil || now.start != p.start
		})
	}
	if !done {
		r.t.Logf("no %s was there", k.target)
	}
	return done
}

// settle uses Skep again, at once, and judges what it finds.
func (r *rig) settle(k round, done bool) {
	r.t.Helper()
	known := map[string]bool{}
	for id, c := range r.cells {
		known[id] = c.ended()
	}
	var waits []cell
	r.await("every cell to be found again or ended", func() bool {
		waits = waits[:0]
		all := r.processes()
		for _, c := range r.list() {
			switch {
			case c.ended() && (known[c.ID] || c.Cause != ""):
			case c.running() && alive(all, c):
			default:
				waits = append(waits, c)
			}
		}
		return len(waits) == 0
	})
	for _, c := range waits {
		r.t.Errorf("cell %s is %s, ended by %q", c.ID, c.State, c.Cause)
	}
	for id, c := range r.cells {
		if c.ended() && !known[id] && done {
			k.judge(r.t, c)
		}
	}
	r.rest()
	r.recorded()
	r.verify()
	r.left()
}

// judge demands that the cause of a cell's end names what was killed, or what ended it
// before that.
func (k round) judge(t *testing.T, c cell) {
	t.Helper()
	names := map[kind][]string{
		daemon: {"daemon-died"},
		// The first to die may be heard by another before that one dies, too.
		everything: {"daemon-died", "skep-worker died", "the worker is gone", "its warden", "PID 1", "box", "skep-model"},
		worker:     {"skep-worker died", "the worker is gone"},
		resident:   {"the warden's parent has gone"},
		warden:     {"its warden was killed", "its warden died"},
		pid1:       {"PID 1"},
		half:       {"its warden was killed", "its warden died"}, // a start had it just then
		halfPID1:   {"PID 1"},
		agent:      {"exit"},
		liveBox:    {"boundary-died", "box"},
		spareBox:   {"boundary-died", "box"}, // the only one there may be a cell's
		model:      {"skep-model"},
	}[k.target]
	switch k.during {
	case stopping:
		names = append(names, "stop")
	case upgrading: // a skepd that has just taken the place cannot begin without a worker
		names = append(names, "daemon-died")
	case first, starting, running, attended, diffing, dropping:
	}
	if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(c.Cause, n) }) {
		t.Errorf("cell %s is %s by %q, status %d; expected one of %q", c.ID, c.State, c.Cause, c.Exit, names)
	}
	if want := map[bool]int{true: 128 + 9, false: 125}[k.target == agent]; c.Exit != want && c.Cause != "stop" {
		t.Errorf("cell %s, ended by %q, has status %d, not %d", c.ID, c.Cause, c.Exit, want)
	}
}

// alive tells whether the agent of a cell is a process.
func alive(all table, c cell) bool {
	token := c.Argv[len(c.Argv)-1]
	for _, p := range all.of(agent) {
		if slices.Contains(p.args, token) {
			return true
		}
	}
	return false
}

// rest stops what still runs.
func (r *rig) rest() {
	r.t.Helper()
	for _, c := range r.list() {
		if !c.ended() {
			r.skep("stop", "--grace", "1ms", c.ID)
		}
	}
	for _, c := range r.list() {
		if !c.ended() {
			r.t.Errorf("cell %s is %s after it was stopped", c.ID, c.State)
		}
	}
}

// recorded demands of the ledger that it has one end of each cell.
func (r *rig) recorded() {
	r.t.Helper()
	entries := r.entries()
	for id, c := range r.cells {
		var ends []string
		for _, e := range entries[id] {
			if e.Kind == "cell.stopped" {
				ends = append(ends, e.Body.Cause+": "+e.Body.Detail)
			}
		}
		if c.ended() && len(ends) != 1 {
			r.once("the ledger has %d ends of cell %s (%s, %s): %q", len(ends), id, c.State, c.Cause, ends)
		}
	}
}
