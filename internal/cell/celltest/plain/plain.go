// Package plain is a driver for tests of what stands above a driver.
//
// Its law: it confines nothing and says so. No program imports it.
package plain

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/snapshot/layer"
	"skep.dev/skep/internal/sys"
)

// Driver is one that confines nothing: an agent is a plain process of the
// test's own user, a box is a goroutine. It is for tests of what stands above a
// driver, where the kernel's part is not the subject.
type Driver struct {
	// BoxError is what a box says instead of being ready.
	BoxError string
	// Time says that processor time is counted; Used, which must be set with it, says how much.
	Time bool
	Used func() (time.Duration, error)
	// Flows are recorded by each box once it is assigned.
	Flows []*skepv1.FlowRecord

	mu      sync.Mutex
	started []*cell.Spec
	boxes   []*plainProcess
	broken  chan struct{} // nil before it is asked for
	gone    bool
}

var (
	_ cell.Driver = (*Driver)(nil)
	_ cell.Mortal = (*Driver)(nil)
)

// Started are the specs of all cells so far.
func (p *Driver) Started() []*cell.Spec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*cell.Spec(nil), p.started...)
}

// KillBoxes ends every box, as kill -9 does.
func (p *Driver) KillBoxes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.boxes {
		b.end()
	}
}

// Break makes every further call fail, as when the worker has died.
func (p *Driver) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	if p.broken != nil {
		close(p.broken)
	}
}

// Gone implements cell.Mortal. It is asked for once, before Break.
func (p *Driver) Gone() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = make(chan struct{})
	if p.gone {
		close(p.broken)
	}
	return p.broken
}

func (p *Driver) alive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return errors.New("the worker is gone")
	}
	return nil
}

// Features implements cell.Driver.
func (p *Driver) Features(context.Context) (cell.Features, error) {
	return cell.Features{Limits: cell.Enforced{Pids: true, Time: p.Time}, AgentID: 1000, GroupID: 1000}, p.alive()
}

// Usage implements cell.Meter.
func (p *Driver) Usage(context.Context, string) (cell.Usage, error) {
	used, err := p.Used()
	return cell.Usage{CPU: used}, err
}

// Close implements cell.Driver.
func (p *Driver) Close() error { return nil }

// Start implements cell.Driver: the agent runs in its first writable grant.
func (p *Driver) Start(_ context.Context, spec *cell.Spec) (cell.Running, error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...)
	cmd.Env = spec.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, g := range spec.Grants {
		if g.Writable && g.Layer != nil {
			cmd.Dir = filepath.Join(g.Layer.Name(), "upper")
			break
		}
	}
	r := &plainCell{cmd: cmd, events: make(chan cell.Event), done: make(chan struct{})}
	var err error
	if spec.Stdio != nil {
		if r.stdio, err = sys.Duplicate(spec.Stdio); err != nil {
			return nil, err
		}
	}
	if r.log, err = sys.Duplicate(spec.Log); err != nil {
		return nil, err
	}
	if _, err := r.log.WriteAt(append([]byte("skeplog1"), make([]byte, 56)...), 0); err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = plainOut{r, 1}, plainOut{r, 2}
	p.mu.Lock()
	p.started = append(p.started, spec)
	p.mu.Unlock()
	if err := cmd.Start(); err != nil {
		r.result = cell.Result{ExitCode: 127, Failed: err}
		r.finish()
		return r, nil
	}
	go func() {
		_ = cmd.Wait()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		r.result.ExitCode = status.ExitStatus()
		if status.Signaled() {
			r.result.ExitCode = 128 + int(status.Signal())
		}
		r.finish()
	}()
	return r, nil
}

// plainCell is one process.
type plainCell struct {
	cmd        *exec.Cmd
	stdio, log *os.File
	mu         sync.Mutex
	total      uint64
	result     cell.Result
	events     chan cell.Event
	done       chan struct{}
}

func (r *plainCell) finish() {
	if r.stdio != nil {
		_ = r.stdio.Close()
	}
	_ = r.log.Close()
	close(r.events)
	close(r.done)
}

// plainOut frames output for the client and keeps it in the log, up to 1 MiB.
type plainOut struct {
	r    *plainCell
	kind byte
}

// Write implements io.Writer.
func (o plainOut) Write(data []byte) (int, error) {
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	_, _ = o.r.log.WriteAt(data, 64+int64(o.r.total))
	o.r.total += uint64(len(data))
	_, _ = o.r.log.WriteAt(binary.LittleEndian.AppendUint64(nil, o.r.total), 8)
	if o.r.stdio != nil {
		head := binary.LittleEndian.AppendUint32([]byte{o.kind}, uint32(len(data)))
		_, _ = o.r.stdio.Write(append(head, data...))
	}
	return len(data), nil
}

// Signal implements cell.Running.
func (r *plainCell) Signal(n int) error {
	return syscall.Kill(-r.cmd.Process.Pid, syscall.Signal(n))
}

// Kill implements cell.Running.
func (r *plainCell) Kill() error { return r.Signal(int(syscall.SIGKILL)) }

// Attach implements cell.Running.
func (r *plainCell) Attach(*os.File) error { return errors.New("a plain cell has no second client") }

// Events implements cell.Running.
func (r *plainCell) Events() <-chan cell.Event { return r.events }

// Done implements cell.Running.
func (r *plainCell) Done() <-chan struct{} { return r.done }

// Result implements cell.Running.
func (r *plainCell) Result() cell.Result { return r.result }

// Enforced implements cell.Running.
func (r *plainCell) Enforced() cell.Enforced { return cell.Enforced{Pids: true} }

// plainProcess is a goroutine that stands for a program.
type plainProcess struct {
	end  context.CancelFunc
	done chan struct{}
}

// Pid implements cell.Process.
func (p *plainProcess) Pid() int { return os.Getpid() }

// Kill implements cell.Process.
func (p *plainProcess) Kill() error {
	p.end()
	return nil
}

// Done implements cell.Process.
func (p *plainProcess) Done() <-chan struct{} { return p.done }

// Box implements cell.Driver: a box that follows the daemon and serves nobody.
func (p *Driver) Box(_ context.Context, ends cell.BoxEnds) (cell.Process, error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(ends.Daemon)
	if err != nil {
		return nil, err
	}
	line, err := sys.Duplicate(ends.Lifeline)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &plainProcess{end: func() { cancel(); _ = line.Close() }, done: make(chan struct{})}
	p.mu.Lock()
	p.boxes = append(p.boxes, b)
	p.mu.Unlock()
	go func() {
		defer close(b.done)
		defer func() { _ = line.Close() }()
		p.follow(ctx, conn, line)
	}()
	return b, nil
}

// follow is the life of a box: it listens on conn until that ends, or it is told to move.
func (p *Driver) follow(ctx context.Context, conn net.Conn, line *os.File) {
	moves := make(chan net.Conn, 1)
	on := conn
	go func() {
		defer func() { _ = conn.Close() }()
		for {
			o, f, err := lifeline.Next(line)
			if err != nil || o != lifeline.Move {
				return
			}
			next, err := net.FileConn(f)
			_ = f.Close()
			if err != nil {
				return
			}
			moves <- next
			_ = conn.Close()
			conn = next
		}
	}()
	for {
		p.listen(ctx, on)
		_ = on.Close()
		select {
		case on = <-moves:
			_ = lifeline.Answer(line, nil)
		default:
			return
		}
	}
}

func (p *Driver) listen(ctx context.Context, conn net.Conn) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	defer transport.CloseIdleConnections()
	client := skepv1connect.NewBoxServiceClient(&http.Client{Transport: transport}, "http://skepd")
	watch, err := client.Watch(ctx, connect.NewRequest(&skepv1.WatchRequest{Protocol: 1}))
	if err != nil {
		return
	}
	for watch.Receive() {
		switch m := watch.Msg(); {
		case m.GetAssignment() != nil:
			if len(p.Flows) > 0 {
				if _, err := client.Record(ctx, connect.NewRequest(&skepv1.RecordRequest{Records: p.Flows})); err != nil {
					return
				}
			}
			_, _ = client.Ready(ctx, connect.NewRequest(&skepv1.ReadyRequest{Error: p.BoxError}))
		case m.GetEnd() != nil:
			_, _ = client.Ready(ctx, connect.NewRequest(&skepv1.ReadyRequest{Done: true}))
		}
	}
}

// Layer implements cell.Driver.
func (p *Driver) Layer(_ context.Context, conn *os.File, powers cell.LayerPowers, grants []cell.LayerGrant) (cell.Process, error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	own, err := sys.Duplicate(conn)
	if err != nil {
		return nil, err
	}
	var served []layer.Grant
	for _, g := range grants {
		s := layer.Grant{}
		if s.Dir, err = sys.Duplicate(g.Layer); err != nil {
			return nil, err
		}
		if g.Files != nil {
			s.Files = map[string]*os.File{}
		}
		for name, f := range g.Files {
			if s.Files[name], err = sys.Duplicate(f); err != nil {
				return nil, err
			}
		}
		if g.Base != nil {
			if s.Base, err = sys.OpenDirBeneath(g.Base, "."); err != nil {
				return nil, err
			}
		}
		if g.Base != nil || g.Files != nil {
			if s.Upper, err = sys.OpenDirBeneath(g.Layer, "upper"); err != nil {
				return nil, err
			}
		}
		served = append(served, s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &plainProcess{end: func() { cancel(); _ = own.Close() }, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer func() { _ = own.Close() }()
		_ = layer.Serve(ctx, own, served, layer.Powers(powers))
	}()
	return l, nil
}
