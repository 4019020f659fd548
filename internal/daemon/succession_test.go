package daemon

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/cell/celltest/plain"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/clocks"
	"skep.dev/skep/internal/daemon/ending"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/sys"
)

// echo answers each line with itself, or with "stop" once it is to.
type echo struct {
	port  int
	lines atomic.Int64
	stop  atomic.Bool
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e, conns := &echo{port: l.Addr().(*net.TCPAddr).Port}, make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-conns })
	go func() {
		defer close(conns)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go e.serve(c)
		}
	}()
	return e
}

func (e *echo) serve(c net.Conn) {
	defer c.Close()
	for in := bufio.NewReader(c); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		e.lines.Add(1)
		if e.stop.Load() {
			line = "stop\n"
		}
		if _, err := io.WriteString(c, line); err != nil {
			return
		}
	}
}

// more waits until the agent has said n lines more.
func (e *echo) more(t *testing.T, n int64) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	from, deadline := e.lines.Load(), time.Now().Add(30*time.Second)
	for e.lines.Load() < from+n {
		if <-tick.C; time.Now().After(deadline) {
			t.Fatal("the agent says nothing")
		}
	}
}

// speaks is an agent with a connection that it keeps and new ones, until it is told to stop.
const speaks = `
exec 3<>/dev/tcp/ok.test/PORT || exit 2
while :; do
	echo kept >&3; read -t 20 -r -u 3 line || exit 3
	exec 4<>/dev/tcp/ok.test/PORT || exit 4
	echo new >&4; read -t 20 -r -u 4 line || exit 5
	exec 4>&-
	[ "$line" = stop ] && exit 0
done`

// native is a lab with the programs, for the one cell of an agent that speaks.
type native struct {
	*lab
	*echo
	box string // the program
}

func newNative(t *testing.T) *native {
	t.Helper()
	if os.Getuid() == 0 {
		t.Skip("skepd does not run as root")
	}
	n := &native{lab: newLab(t), echo: newEcho(t)}
	n.box = filepath.Join(n.dir, "skep-box")
	n.install(celltest.Program(t, "skep-box"))
	n.config.Driver = celltest.Driver(t, func(c *exec.Cmd) {
		for i, a := range c.Args {
			if a == "--box" {
				c.Args[i+1] = n.box
			}
		}
	})
	n.config.Clock = clocks.System{}
	n.config.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	n.config.Ceiling = func() (policy.Ceiling, error) { return policy.Ceiling{NoFloor: true}, nil }
	n.start()
	return n
}

// install makes the file the box's program.
func (n *native) install(file string) {
	n.t.Helper()
	content, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(n.box+".new", content, 0o755)
	}
	if err == nil {
		err = os.Rename(n.box+".new", n.box)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// begin runs the agent; what becomes of it comes over the channel.
func (n *native) begin() (*life, <-chan *skepv1.Cell) {
	n.t.Helper()
	q := n.ask()
	ended := make(chan *skepv1.Cell, 1)
	go func() {
		c, err := n.run(q)
		if err != nil {
			n.t.Error(err)
		}
		ended <- c
	}()
	n.more(n.t, 4)
	return n.daemon.lives()[0], ended
}

// ask is the request for the agent, with what a shell needs.
func (n *native) ask() *skepv1.RunRequest {
	n.t.Helper()
	source := "version: v1\npaths:\n  - {path: ., rights: rw}\n"
	system := []string{"/usr", "/bin", "/lib", "/lib64"}
	for _, path := range system {
		source += "  - {path: " + path + ", rights: ro}\n"
	}
	source += fmt.Sprintf("net:\n  - {name: ok.test, resolve: [127.0.0.1], ports: [%d]}\nresolved_addresses:\n  - {cidr: 127.0.0.0/8, ports: [%[1]d]}\nbudget: {net: 64MiB}\n", n.port)
	p, faults := profile.ParseAt("test.yaml", profile.Place{Dir: n.work}, []byte(source))
	if faults != nil {
		n.t.Fatal(faults)
	}
	var roles []handover.Role
	var files []*os.File
	for _, path := range append(system, n.work, "/usr/bin", "/usr/lib", "/usr/lib64") {
		f, err := sys.OpenPlace(path)
		if err != nil {
			n.t.Fatal(err)
		}
		defer f.Close()
		roles, files = append(roles, handover.Role{Role: handover.RolePath, Path: path}), append(files, f)
	}
	ticket, err := handover.Offer(filepath.Join(n.config.Run, "fd.sock"), roles, files)
	if err != nil {
		n.t.Fatal(err)
	}
	return &skepv1.RunRequest{
		Profile: []byte(source), ProfileName: "test.yaml", ProfileDir: n.work, ConfirmedDigest: p.Digest(), ConfirmedHow: "flag",
		Argv: []string{"/bin/bash", "-c", strings.ReplaceAll(speaks, "PORT", fmt.Sprint(n.port))}, Ticket: ticket, WorkingDir: n.work,
	}
}

// recorded demands that each flow of a cell has its beginning and its end.
func (n *native) recorded(c *skepv1.Cell) {
	n.t.Helper()
	count := map[string]int{}
	for _, k := range n.kinds(c.Id) {
		count[k]++
	}
	if count["flow.intent"] != count["flow.outcome"] || count["flow.intent"] != int(c.CrossingsAllowed) || count["flow.denied"] != 0 || c.CrossingsRefused != 0 {
		n.t.Errorf("recorded %v, counted %d and %d", count, c.CrossingsAllowed, c.CrossingsRefused)
	}
}

// The box of a running cell is replaced by another program while the agent speaks: it does
// not notice, its kept connection goes on in the first box, and everything is recorded.
func TestReplacedBoxIsNotNoticed(t *testing.T) {
	n := newNative(t)
	l, ended := n.begin()
	first := l.boundary.Now()
	for i := range 6 {
		before := l.boundary.Now().Process.Pid()
		if err := n.daemon.replaceBox(context.Background(), l); err != nil {
			t.Fatal(err)
		}
		if l.boundary.Now().Process.Pid() == before {
			t.Fatal("the box is the one before")
		}
		n.more(t, 6)
		if i == 0 {
			continue
		}
		// Those between have no flow of the agent's, and have ended; the first has.
		for deadline := time.Now().Add(10 * time.Second); len(l.boundary.All()) > 2 && time.Now().Before(deadline); {
			n.more(t, 2)
		}
		if all := l.boundary.All(); len(all) != 2 || all[0] != first {
			t.Fatalf("there are %d boxes", len(all))
		}
	}
	n.echo.stop.Store(true)
	c := <-ended
	if c.GetCause() != "exit" || c.GetExitCode() != 0 {
		t.Fatalf("%v", c)
	}
	n.recorded(c)
}

// A program that is no box changes nothing, however often it is tried.
func TestBoxThatIsNoneReplacesNothing(t *testing.T) {
	n := newNative(t)
	l, ended := n.begin()
	serves := l.boundary.Now()
	for range 3 {
		n.install("/bin/true")
		if err := n.daemon.replaceBox(context.Background(), l); err == nil {
			t.Fatal("it was replaced by a program that is no box")
		}
		if err := os.Remove(n.box); err != nil {
			t.Fatal(err)
		}
		if err := n.daemon.replaceBox(context.Background(), l); err == nil {
			t.Fatal("it was replaced by nothing")
		}
		if l.boundary.Now() != serves {
			t.Fatal("another box serves")
		}
		n.more(t, 6)
	}
	n.install(celltest.Program(t, "skep-box"))
	if err := n.daemon.replaceBox(context.Background(), l); err != nil {
		t.Fatal(err)
	}
	n.more(t, 6)
	n.echo.stop.Store(true)
	c := <-ended
	if c.GetCause() != "exit" || c.GetExitCode() != 0 {
		t.Fatalf("%v", c)
	}
	n.recorded(c)
}

// A box that was replaced and dies takes the agent's flows with it: that ends the cell,
// as the death of the one that serves does.
func TestDeathOfEitherBoxEndsTheCell(t *testing.T) {
	for name, which := range map[string]int{"the one before": 0, "the one that serves": 1} {
		t.Run(name, func(t *testing.T) {
			n := newNative(t)
			l, ended := n.begin()
			if err := n.daemon.replaceBox(context.Background(), l); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(l.boundary.All()[which].Process.Pid(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if c := <-ended; c.GetCause() != "boundary-died" {
				t.Errorf("%v", c)
			}
		})
	}
}

// A box that answers no order serves nobody that can be told of: the attempt to replace it
// ends its cell, in bounded time.
func TestBoxThatHangsEndsItsCell(t *testing.T) {
	n := newNative(t)
	l, ended := n.begin()
	pid := l.boundary.Now().Process.Pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := n.daemon.replaceBox(ctx, l); err == nil {
		t.Error("it was replaced")
	}
	if why := l.reason(cells.Cause{}); why.Word != "boundary-died" || why.Detail != "it could not be replaced" {
		t.Errorf("%+v", why)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL) // its last records are waited for
	select {
	case c := <-ended:
		if c.GetCause() != "boundary-died" {
			t.Errorf("%v", c)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the cell goes on")
	}
}

// liar is a driver whose boxes the test speaks for on their lifelines, too.
type liar struct {
	*plain.Driver
	lines chan *os.File
}

// Box implements cell.Driver.
func (d liar) Box(ctx context.Context, ends cell.BoxEnds) (cell.Process, error) {
	line, err := sys.Duplicate(ends.Lifeline)
	if err != nil {
		return nil, err
	}
	d.lines <- line
	return d.Driver.Box(ctx, ends)
}

// TestBoxThatLiesEndsItsCell is the attack: a box that was taken over says over its
// lifeline what nobody asked, or sends a descriptor and so asks for one. Its own cell ends.
func TestBoxThatLiesEndsItsCell(t *testing.T) {
	for name, say := range map[string]func(line *os.File) error{
		"unasked":      func(line *os.File) error { return lifeline.Answer(line, nil) },
		"an order":     func(line *os.File) error { return sys.SendFDs(line, []byte{byte(lifeline.HandOver)}, line) },
		"nothing true": func(line *os.File) error { return sys.SendFDs(line, []byte("skepd, give me the others")) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			d := liar{l.driver, make(chan *os.File, 16)}
			l.config.Driver = d
			l.start()
			stream, err := l.client().Run(context.Background(), connect.NewRequest(l.request("", "/bin/sleep", "600")))
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			var c *skepv1.Cell
			for stream.Receive() {
				if c = stream.Msg().Cell; c.GetState() == skepv1.CellState_CELL_STATE_RUNNING {
					line := <-d.lines // of the spare box, which got the cell
					defer line.Close()
					if err := say(line); err != nil {
						t.Error(err)
					}
					go l.turnUntilEnded(boxGrace)
				}
			}
			if c.GetCause() != "boundary-died" || c.GetExitCode() != ending.Failed {
				t.Errorf("got %v (%v)", c, stream.Err())
			}
		})
	}
}
