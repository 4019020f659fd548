package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/client"
	"skep.dev/skep/internal/cell/celltest/plain"
	"skep.dev/skep/internal/daemon/ending"
	"skep.dev/skep/internal/daemon/idle"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/daemon/selftest"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/sys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is turned by hand.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	timers map[int]timer
	next   int
}

type timer struct {
	at time.Time
	f  func()
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), timers: map[int]timer{}}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) AfterFunc(d time.Duration, f func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	id := c.next
	c.timers[id] = timer{c.now.Add(d), f}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.timers, id)
	}
}

// turn moves the time and runs what is due, in order, each in its own goroutine.
func (c *clock) turn(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []int
	for id, t := range c.timers {
		if !t.at.After(c.now) {
			due = append(due, id)
		}
	}
	slices.SortFunc(due, func(a, b int) int { return c.timers[a].at.Compare(c.timers[b].at) })
	var run []func()
	for _, id := range due {
		run = append(run, c.timers[id].f)
		delete(c.timers, id)
	}
	c.mu.Unlock()
	for _, f := range run {
		go f()
	}
}

// fakeWalls are proved, or not; a plain driver has none to try.
type fakeWalls struct {
	err   error
	fresh bool
	asked atomic.Int32
}

func (w *fakeWalls) Held(context.Context, selftest.Runner) (selftest.Proof, bool, error) {
	w.asked.Add(1)
	return selftest.Proof{Kernel: "6", Walls: []string{"Landlock"}}, w.fresh, w.err
}

// lab is a daemon with a plain driver, served on its sockets.
type lab struct {
	t      *testing.T
	dir    string
	config Config
	driver *plain.Driver
	clock  *clock
	daemon *Daemon
	ended  chan error
	stop   context.CancelFunc
	work   string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, dir: dir, driver: &plain.Driver{}, clock: newClock(), work: filepath.Join(dir, "work")}
	for _, d := range []string{"state", "run", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l.config = Config{
		State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run"), Driver: l.driver, Clock: l.clock,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Version: "test", Owners: []uint32{uint32(os.Getuid())},
		Walls:   &fakeWalls{},
		Orphan:  func(context.Context, string) (bool, error) { return false, nil },
		Ceiling: func() (policy.Ceiling, error) { return policy.Ceiling{}, nil },
	}
	return l
}

func (l *lab) start() *lab {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	if l.daemon, err = Open(ctx, l.config); err != nil {
		l.t.Fatal(err)
	}
	l.stop, l.ended = cancel, make(chan error, 1)
	go func() { l.ended <- l.daemon.Serve(ctx) }()
	l.t.Cleanup(func() {
		cancel()
		if err := <-l.ended; err != nil {
			l.t.Errorf("serve: %v", err)
		}
		l.ended <- nil
	})
	for deadline := time.Now().Add(10 * time.Second); ; {
		if f, err := sys.ConnectUnix(filepath.Join(l.config.Run, "api.sock"), sys.Stream); err == nil {
			_ = f.Close()
			return l
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the daemon does not listen")
		}
	}
}

func (l *lab) client() skepv1connect.SkepClient {
	return client.New(filepath.Join(l.config.Run, "api.sock"))
}

// request asks to run argv with the work directory writable.
func (l *lab) request(budget string, argv ...string) *skepv1.RunRequest {
	l.t.Helper()
	source := []byte("version: v1\npaths:\n  - {path: ., rights: rw}\n" + budget)
	p, faults := profile.ParseAt("test.yaml", profile.Place{Dir: l.work}, source)
	if faults != nil {
		l.t.Fatal(faults)
	}
	f, err := sys.OpenPlace(l.work)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	ticket, err := handover.Offer(filepath.Join(l.config.Run, "fd.sock"), []handover.Role{{Role: handover.RolePath, Path: l.work}}, []*os.File{f})
	if err != nil {
		l.t.Fatal(err)
	}
	return &skepv1.RunRequest{
		Profile: source, ProfileName: "test.yaml", ProfileDir: l.work, ConfirmedDigest: p.Digest(), ConfirmedHow: "flag",
		Argv: argv, Ticket: ticket, WorkingDir: l.work,
	}
}

// run runs a cell to its end.
func (l *lab) run(q *skepv1.RunRequest) (*skepv1.Cell, error) {
	stream, err := l.client().Run(context.Background(), connect.NewRequest(q))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var last *skepv1.Cell
	for stream.Receive() {
		if c := stream.Msg().Cell; c != nil {
			last = c
		}
	}
	return last, stream.Err()
}

// kinds are the kinds of a cell's entries, in order.
func (l *lab) kinds(cell string) (out []string) {
	l.t.Helper()
	stream, err := l.client().LedgerRead(context.Background(), connect.NewRequest(&skepv1.LedgerReadRequest{Cell: cell}))
	if err != nil {
		l.t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		_, rest, _ := strings.Cut(string(stream.Msg().Json), `"kind":"`)
		kind, _, _ := strings.Cut(rest, `"`)
		out = append(out, kind)
	}
	if err := stream.Err(); err != nil {
		l.t.Fatal(err)
	}
	return out
}

// A box that did not hear that a flow's end is written tells it again: it is recorded,
// and its bytes are counted, once.
func TestOutcomeIsRecordedOnce(t *testing.T) {
	l := newLab(t)
	one := func(kind skepv1.FlowRecord_Kind) *skepv1.FlowRecord {
		return &skepv1.FlowRecord{Kind: kind, Flow: strings.Repeat("1", 32), Destination: "x.example:443", Transport: "tcp", Direction: "out", BytesUp: 9}
	}
	outcome := skepv1.FlowRecord_KIND_OUTCOME
	l.driver.Flows = []*skepv1.FlowRecord{one(skepv1.FlowRecord_KIND_INTENT), one(outcome), one(outcome), one(outcome)}
	l.start()
	c, err := l.run(l.request("", "/bin/true"))
	if err != nil {
		t.Fatal(err)
	}
	if c.CrossingsAllowed != 1 || c.CrossingsRefused != 0 {
		t.Errorf("counted %d allowed, %d refused", c.CrossingsAllowed, c.CrossingsRefused)
	}
	want := []string{"cell.declared", "flow.intent", "flow.outcome", "cell.started", "cell.stopped"}
	if got := l.kinds(c.Id); !slices.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
}

// A rule that matches is no way out if the address is refused: that is counted and
// explained as a refusal. That an open flow ended with its cell is none.
func TestRefusedAddressIsARefusal(t *testing.T) {
	l := newLab(t)
	for i, why := range []string{"resolved-address-denied", "resolve-failed", "dial-failed", "no-provider", "revoked", "idle-timeout"} {
		for _, kind := range []skepv1.FlowRecord_Kind{skepv1.FlowRecord_KIND_INTENT, skepv1.FlowRecord_KIND_OUTCOME} {
			r := &skepv1.FlowRecord{
				Kind: kind, Flow: strings.Repeat(strconv.Itoa(i), 32), Destination: why + ".example:443", Transport: "tcp", Direction: "out", Decision: "allow",
			}
			if kind == skepv1.FlowRecord_KIND_OUTCOME {
				r.Decision, r.Reason = "fail", why
			}
			l.driver.Flows = append(l.driver.Flows, r)
		}
	}
	l.start()
	c, err := l.run(l.request("", "/bin/true"))
	if err != nil || c.CrossingsAllowed != 6 || c.CrossingsRefused != 4 {
		t.Errorf("%v: counted %d allowed, %d refused", err, c.GetCrossingsAllowed(), c.GetCrossingsRefused())
	}
	e, err := l.client().Explain(t.Context(), connect.NewRequest(&skepv1.ExplainRequest{Cell: c.Id, Host: "resolved-address-denied.example"}))
	if err != nil || !strings.Contains(e.Msg.Why, "resolves to an address") || !strings.Contains(e.Msg.AllowWith, "resolve: [ADDRESS]") {
		t.Errorf("explained %v, %v", e, err)
	}
}

func TestCellRunsAndIsRecorded(t *testing.T) {
	l := newLab(t)
	l.driver.Flows = []*skepv1.FlowRecord{{
		Kind: skepv1.FlowRecord_KIND_DENIED, Flow: strings.Repeat("0", 32), Destination: "x.example:443", Transport: "tcp",
		Direction: "out", Decision: "block", Reason: "not-on-allowlist", Count: 3,
	}}
	l.start()
	c, err := l.run(l.request("", "/bin/sh", "-c", "echo out; echo new > file; exit 7"))
	if err != nil {
		t.Fatal(err)
	}
	if c.State != skepv1.CellState_CELL_STATE_STOPPED || c.ExitCode != 7 || c.Cause != "exit" || c.CrossingsRefused != 3 || c.FilesChanged != 1 {
		t.Errorf("got %v", c)
	}
	want := []string{"cell.declared", "flow.denied", "cell.started", "cell.stopped"}
	if got := l.kinds(c.Id); !slices.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
	logs, err := l.client().Logs(context.Background(), connect.NewRequest(&skepv1.LogsRequest{Cell: "last"}))
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	var out []byte
	for logs.Receive() {
		out = append(out, logs.Msg().Data...)
	}
	if string(out) != "out\n" {
		t.Errorf("log holds %q", out)
	}
	if _, err := os.Stat(filepath.Join(l.config.Run, "cells", c.Id)); !os.IsNotExist(err) {
		t.Errorf("the run directory of the cell is left: %v", err)
	}
	e, err := l.client().Explain(context.Background(), connect.NewRequest(&skepv1.ExplainRequest{Cell: c.Id, Host: "x.example"}))
	if err != nil || !strings.Contains(e.Msg.Why, "not-on-allowlist") {
		t.Errorf("explained %v, %v", e, err)
	}
}

func TestSpecHoldsNothingOfTheDaemon(t *testing.T) {
	t.Setenv("SKEP_CANARY", "leak")
	l := newLab(t).start()
	if _, err := l.run(l.request("", "/bin/true")); err != nil {
		t.Fatal(err)
	}
	for _, pair := range l.driver.Started()[0].Env {
		if strings.Contains(pair, "leak") {
			t.Errorf("the agent sees %s", pair)
		}
	}
	q := l.request("", "/bin/true")
	q.Env = map[string]string{"LD_PRELOAD": "/x"}
	if _, err := l.run(q); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a variable that the profile does not pass: %v", err)
	}
}

func TestRefusedBeforeAnythingHappens(t *testing.T) {
	l := newLab(t).start()
	for name, c := range map[string]struct {
		change func(*skepv1.RunRequest)
		code   connect.Code
	}{
		"not confirmed":        {func(q *skepv1.RunRequest) { q.ConfirmedDigest = "" }, connect.CodeFailedPrecondition},
		"said to be shipped":   {func(q *skepv1.RunRequest) { q.ConfirmedHow = "shipped" }, connect.CodeInvalidArgument},
		"no program":           {func(q *skepv1.RunRequest) { q.Argv = nil }, connect.CodeInvalidArgument},
		"profile with fault":   {func(q *skepv1.RunRequest) { q.Profile = append(q.Profile, "nonsense: 1\n"...) }, connect.CodeInvalidArgument},
		"unknown ticket":       {func(q *skepv1.RunRequest) { q.Ticket = strings.Repeat("0", 32) }, connect.CodeFailedPrecondition},
		"name of another kind": {func(q *skepv1.RunRequest) { q.Name = "last" }, connect.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			q := l.request("", "/bin/true")
			c.change(q)
			if _, err := l.run(q); connect.CodeOf(err) != c.code {
				t.Errorf("got %v, want %v", err, c.code)
			}
		})
	}
	if n := len(l.driver.Started()); n > 0 {
		t.Errorf("%d cells were started", n)
	}
}

// A grant whose object stands elsewhere than its role says is not granted.
func TestGrantMustStandWhereItSays(t *testing.T) {
	l := newLab(t).start()
	q := l.request("", "/bin/true")
	other, err := sys.OpenPlace(l.config.State)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	q.Ticket, err = handover.Offer(filepath.Join(l.config.Run, "fd.sock"), []handover.Role{{Role: handover.RolePath, Path: l.work}}, []*os.File{other})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.run(q)
	if err == nil && len(c.Grants) > 0 {
		t.Errorf("the daemon's state was granted as %v", c.Grants)
	}
}

func TestWallBudgetEndsTheCell(t *testing.T) {
	l := newLab(t).start()
	q := l.request("budget: {wall: 20m}\n", "/bin/sleep", "600")
	stream, err := l.client().Run(context.Background(), connect.NewRequest(q))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var c *skepv1.Cell
	for stream.Receive() {
		if c = stream.Msg().Cell; c.GetState() == skepv1.CellState_CELL_STATE_RUNNING {
			l.clock.turn(20 * time.Minute)
		}
	}
	if c.GetExitCode() != ending.Budget || c.Cause != "budget: wall" || c.Limit != (20*time.Minute).Milliseconds() || c.Peak < c.Limit {
		t.Errorf("got %v (%v)", c, stream.Err())
	}
}

// Processor time is what the kernel has counted, asked again and again; where it
// cannot be asked any more, the cell ends (L13).
func TestProcessorTimeEndsTheCell(t *testing.T) {
	for name, c := range map[string]struct {
		used  []time.Duration // the answers, in turn; an error after the last
		cause string
		code  int32
	}{
		"used up":     {[]time.Duration{time.Second, 59 * time.Second, time.Minute}, "budget: cpu_time", ending.Budget},
		"not counted": {[]time.Duration{time.Second}, "failed: its processor time cannot be counted any more: no worker", ending.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			asked := make(chan struct{}, 8)
			n := 0
			l.driver.Time = true
			l.driver.Used = func() (time.Duration, error) {
				defer func() { asked <- struct{}{} }()
				if n++; n > len(c.used) {
					return 0, errors.New("no worker")
				}
				return c.used[n-1], nil
			}
			l.start()
			stream, err := l.client().Run(context.Background(), connect.NewRequest(l.request("budget: {cpu_time: 1m}\n", "/bin/sleep", "600")))
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			for stream.Receive() && stream.Msg().Cell.GetState() != skepv1.CellState_CELL_STATE_RUNNING {
			}
			ended := make(chan *skepv1.Cell, 1)
			go func() {
				var last *skepv1.Cell
				for stream.Receive() {
					last = stream.Msg().Cell
				}
				ended <- last
			}()
			for {
				l.clock.turn(time.Second)
				select {
				case <-asked:
				case last := <-ended:
					if last.GetCause() != c.cause || last.ExitCode != c.code {
						t.Errorf("%+v", last)
					}
					return
				default:
				}
			}
		})
	}
}

// A host that does not count refuses the budget, or runs without it where that is said.
func TestUncountedTimeIsRefused(t *testing.T) {
	l := newLab(t).start()
	if _, err := l.run(l.request("budget: {cpu_time: 1m}\n", "true")); err == nil || !strings.Contains(err.Error(), "budget.cpu_time (line 4") {
		t.Errorf("%v", err)
	}
	c, err := l.run(l.request("budget: {cpu_time: {limit: 1m, if_available: true}}\n", "true"))
	if err != nil || !slices.Equal(c.Unenforced, []string{"cpu_time"}) {
		t.Errorf("%v %v", c, err)
	}
}

func TestStopIsTheFirstCause(t *testing.T) {
	l := newLab(t).start()
	q := l.request("", "/bin/sleep", "600")
	q.Name = "sleeper"
	stream, err := l.client().Run(context.Background(), connect.NewRequest(q))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() && stream.Msg().Cell.GetState() != skepv1.CellState_CELL_STATE_RUNNING {
	}
	r, err := l.client().Stop(context.Background(), connect.NewRequest(&skepv1.StopRequest{Cell: "sleeper"}))
	if err != nil {
		t.Fatal(err)
	}
	if r.Msg.Cause != "stop" || r.Msg.ExitCode != 128+15 {
		t.Errorf("got %v", r.Msg)
	}
}

func TestBG20BoxThatCannotServeStartsNoAgent(t *testing.T) {
	l := newLab(t)
	l.driver.BoxError = "no route"
	l.start()
	c, err := l.run(l.request("", "/bin/sleep", "600"))
	if err != nil {
		t.Fatal(err)
	}
	if c.State != skepv1.CellState_CELL_STATE_FAILED || c.ExitCode != ending.Failed || !strings.Contains(c.Cause, "no route") {
		t.Errorf("got %v", c)
	}
	if got := l.kinds(c.Id); !slices.Equal(got, []string{"cell.declared", "cell.stopped"}) {
		t.Errorf("recorded %v", got)
	}
}

func TestWithoutWorkerTheDaemonEnds(t *testing.T) {
	l := newLab(t).start()
	stream, err := l.client().Run(context.Background(), connect.NewRequest(l.request("", "/bin/sleep", "600")))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var last *skepv1.Cell
	for stream.Receive() {
		if last = stream.Msg().Cell; last.GetState() == skepv1.CellState_CELL_STATE_RUNNING {
			l.driver.Break()
		}
	}
	if last.GetState() != skepv1.CellState_CELL_STATE_STOPPED || last.ExitCode != ending.Failed || !strings.Contains(last.Cause, "skep-worker died") {
		t.Errorf("the cell: %v", last)
	}
	if err := <-l.ended; err != nil {
		t.Error(err)
	}
	l.ended <- nil
	if _, err := os.Stat(filepath.Join(l.daemon.Run, "api.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a caller would still find it: %v", err)
	}
}

func TestUnknownFieldIsAnErrorWithItsName(t *testing.T) {
	l := newLab(t).start()
	h := l.daemon.handler()
	for name, c := range map[string]struct{ path, body, want string }{
		"top":    {"/skep.v1.Skep/List", `{"all":true,"nonsense":1}`, "nonsense"},
		"nested": {"/skep.v1.Skep/Run", `{"terminal":{"rowz":3}}`, "rowz"},
		"type":   {"/skep.v1.Skep/List", `{"all":"perhaps"}`, "all"},
	} {
		t.Run(name, func(t *testing.T) {
			q, _ := http.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
			q.Header.Set("Content-Type", "application/json")
			if strings.HasSuffix(c.path, "Run") {
				q.Header.Set("Content-Type", "application/connect+json")
				q.Body = io.NopCloser(bytes.NewReader(append([]byte{0, 0, 0, 0, byte(len(c.body))}, c.body...)))
			}
			w := &answer{header: http.Header{}}
			h.ServeHTTP(w, q.WithContext(peer.With(q.Context(), peer.Peer{UID: uint32(os.Getuid())})))
			if !strings.Contains(w.body.String(), c.want) || strings.Contains(w.body.String(), `"cells"`) {
				t.Errorf("answered %d %s", w.status, w.body.String())
			}
		})
	}
}

// answer is a response that is kept.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(s int)           { a.status = s }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
func (a *answer) Flush()                      {}

func TestWrongPeerIsRefused(t *testing.T) {
	l := newLab(t)
	l.config.Owners = []uint32{uint32(os.Getuid()) + 1}
	l.start()
	if _, err := l.client().List(context.Background(), connect.NewRequest(&skepv1.ListRequest{})); err == nil {
		t.Error("another user's call was answered")
	}
	// Behind the listener, too, nothing is allowed to a caller who is not known.
	for _, c := range l.daemon.calls() {
		w := &answer{header: http.Header{}}
		q, _ := http.NewRequest(http.MethodPost, c.procedure, strings.NewReader("{}"))
		l.daemon.handler().ServeHTTP(w, q)
		if w.status != http.StatusForbidden {
			t.Errorf("%s answered %d to nobody", c.procedure, w.status)
		}
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	l := newLab(t).start()
	other := l.config
	other.Run = t.TempDir()
	if d, err := Open(context.Background(), other); err == nil {
		d.Close()
		t.Fatal("a second daemon took the state")
	} else if !strings.Contains(err.Error(), "another skepd") {
		t.Error(err)
	}
}

func TestIdleDaemonEnds(t *testing.T) {
	l := newLab(t)
	l.config.Auto = true
	l.start()
	if _, err := l.client().List(context.Background(), connect.NewRequest(&skepv1.ListRequest{})); err != nil {
		t.Fatal(err)
	}
	l.clock.turn(idle.After - time.Second)
	if l.daemon.ctx.Err() != nil {
		t.Fatal("it ended too early")
	}
	// The call's end re-arms the timer in its own time.
	for end := time.Now().Add(10 * time.Second); l.daemon.ctx.Err() == nil && time.Now().Before(end); {
		l.clock.turn(idle.After)
	}
	if err := <-l.ended; err != nil {
		t.Error(err)
	}
	l.ended <- nil
}

func TestCellsOfADeadDaemonAreEndedAndRecorded(t *testing.T) {
	l := newLab(t).start()
	q := l.request("", "/bin/sleep", "600")
	stream, err := l.client().Run(context.Background(), connect.NewRequest(q))
	if err != nil {
		t.Fatal(err)
	}
	for stream.Receive() && stream.Msg().Cell.GetState() != skepv1.CellState_CELL_STATE_RUNNING {
	}
	id := stream.Msg().Cell.Id
	record, err := os.ReadFile(filepath.Join(l.config.State, "cells", id, "cell.json"))
	if err != nil {
		t.Fatal(err)
	}
	// What a kill -9 would leave now: it runs, by its record and by the ledger.
	crashed := l.config
	crashed.State += "-crashed"
	if out, err := exec.Command("cp", "-a", l.config.State, crashed.State).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l.stop()
	stream.Close()
	<-l.ended
	l.ended <- nil
	// And between the two records of its end: the ledger has it, the record does not.
	if err := os.WriteFile(filepath.Join(l.config.State, "cells", id, "cell.json"), record, 0o600); err != nil {
		t.Fatal(err)
	}
	for cause, config := range map[string]Config{"daemon-died": crashed, "stop": l.config} {
		t.Run(cause, func(t *testing.T) { reconciled(t, l, config, id, cause) })
	}
}

// reconciled starts a daemon on what another left, which is one cell.
func reconciled(t *testing.T, l *lab, config Config, id, cause string) {
	lost := filepath.Join(config.State, "cells", strings.Repeat("a", 26))
	left := filepath.Join(config.Run, "cells", id)
	for _, dir := range []string{lost, left} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var asked []string
	config.Orphan = func(_ context.Context, socket string) (bool, error) {
		asked = append(asked, socket)
		return true, nil
	}
	again := &lab{t: t, config: config, driver: l.driver, clock: l.clock, work: l.work}
	again.start()
	c, err := again.client().Get(context.Background(), connect.NewRequest(&skepv1.GetRequest{Cell: id}))
	if err != nil || c.Msg.State != skepv1.CellState_CELL_STATE_STOPPED || c.Msg.Cause != cause {
		t.Errorf("got %v, %v", c, err)
	}
	ends := 0
	for _, err := range ledger.Read(filepath.Join(config.State, "ledger"), ledger.Filter{Cell: id, Kinds: []kind.Kind{kind.KindCellStopped}}) {
		if ends++; err != nil {
			t.Error(err)
		}
	}
	if ends != 1 {
		t.Errorf("the ledger has %d ends", ends)
	}
	if !slices.Equal(asked, []string{filepath.Join(left, "w")}) {
		t.Errorf("asked wardens %v", asked)
	}
	for _, dir := range []string{lost, left} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left", dir)
		}
	}
}
