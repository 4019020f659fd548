package native

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/worker/proto"
)

// event and command are struct event and struct command of warden/warden.h.
type event struct {
	Kind uint32
	A, B int32
	Pid  uint32
	D    uint64
	Text [104]byte
}

type command struct {
	Kind uint32
	A    int32
	Pad  [6]uint32
}

const (
	evStarted, evFailed, evExecFailed, evExited, evAttached, evDetached = 1, 2, 3, 4, 5, 6
	cmdSignal, cmdAttach, cmdKill                                       = 1, 2, 3

	exitNotExecutable, exitNotFound, exitFailed = 126, 127, 125
)

// running follows one warden.
type running struct {
	id       string
	driver   *Driver
	warden   *process
	control  *os.File
	enforced cell.Enforced
	events   chan cell.Event
	started  chan error
	done     chan struct{}

	mu     sync.Mutex
	result cell.Result
	exited bool
	silent chan struct{} // not nil from Pause on; closed when nobody reads any more
}

func newRunning(id string, d *Driver, warden *process, control *os.File, enforced cell.Enforced) *running {
	return &running{
		id: id, driver: d, control: control, enforced: enforced, warden: warden,
		events: make(chan cell.Event, 16), started: make(chan error, 1), done: make(chan struct{}),
	}
}

// Start builds a cell and returns once its agent was executed. A program that
// cannot be executed is a cell that ran and ended with 126 or 127.
func (d *Driver) Start(ctx context.Context, spec *cell.Spec) (cell.Running, error) {
	if err := conflict(spec); err != nil {
		return nil, err
	}
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		return nil, err
	}
	v, err := newView(spec.Size, spec.Limits, time.Now())
	if err != nil {
		sys.CloseAll([]*os.File{ours, theirs})
		return nil, fmt.Errorf("show the cell its own size: %w", err)
	}
	mounted, _ := d.mounts.Points() // what is not known is taken for a mount
	whole := *spec
	var opened []*os.File
	whole.Grants, opened = withOwnersTree(spec.Grants)
	defer sys.CloseAll(opened)
	build, files := request(&whole, v.names, mounted)
	all := []*os.File{theirs, spec.Box, spec.Control, spec.Log}
	if spec.Stdio != nil {
		all = append(all, spec.Stdio)
	}
	reply, got, err := d.call(ctx, proto.Request{Build: build}, append(all, files...)...)
	_ = theirs.Close() // the warden's copy alone keeps our end from reading the end
	if err != nil {
		v.close()
		_ = ours.Close()
		return nil, fmt.Errorf("build the cell: %w", err)
	}
	if len(got) != 1 || reply.Limits == nil {
		v.close()
		sys.CloseAll(got)
		_ = ours.Close()
		return nil, errors.New("build the cell: the worker answered without a pidfd")
	}
	r := newRunning(spec.ID, d, newProcess(reply.Pid, got[0]), ours, cell.Enforced(*reply.Limits))
	v.counted = r.enforced.Memory || r.enforced.Time
	d.views.add(spec.ID, v, d.Usage)
	go r.follow()
	select {
	case err := <-r.started:
		if err != nil {
			<-r.done
			return nil, fmt.Errorf("build the cell: %w", withMount(err, whole.Grants, mounted))
		}
		return r, nil
	case <-ctx.Done():
		_ = r.Kill() // by word: a warden of root's worker is another user's
		<-r.done
		return nil, fmt.Errorf("build the cell: %w", ctx.Err())
	}
}

// follow reads the warden's events until it has gone, then takes the cell down; or
// until it is paused.
func (r *running) follow() {
	buf := make([]byte, 256)
	gone := false
	for !gone {
		n, files, err := sys.RecvFDs(r.control, buf, 0)
		sys.CloseAll(files)
		if sys.IsTimeout(err) {
			r.mu.Lock()
			defer r.mu.Unlock()
			close(r.silent)
			return
		}
		if err != nil || n == 0 {
			break
		}
		var e event
		if err := binary.Read(bytes.NewReader(buf[:n]), binary.NativeEndian, &e); err == nil {
			r.hear(e)
			gone = e.Kind == evExited
		}
	}
	defer close(r.done)
	defer close(r.events)
	defer r.driver.views.remove(r.id)
	// With PID 1 its whole namespace has gone. The warden needs some milliseconds
	// more, to take down mounts and network: that is not the cell's time.
	if !gone {
		// A warden that lives on without us listens to somebody else: whoever of our
		// uid connected to its socket. A cell that we cannot stop is ended.
		_ = r.warden.Kill()
		<-r.warden.done
	}
	_ = r.control.Close()
	r.close()
	select {
	case r.started <- errors.New("its warden died"):
	default:
	}
}

func (r *running) hear(e event) {
	text, _, _ := bytes.Cut(e.Text[:], []byte{0})
	switch e.Kind {
	case evStarted:
		r.tellStarted(nil)
	case evFailed:
		err := fmt.Errorf("%s: %w", text, syscall.Errno(e.A))
		r.set(cell.Result{ExitCode: exitFailed, Failed: err})
		r.tellStarted(err)
	case evExecFailed:
		code, hint := exitNotExecutable, "is it executable, as chmod +x makes it, and is each directory on the way open to others?"
		if syscall.Errno(e.A) == syscall.ENOENT {
			code, hint = exitNotFound, "is it granted, and for a dynamic program /lib and /lib64?"
		}
		r.set(cell.Result{ExitCode: code, Failed: fmt.Errorf("execute %q: %w (%s)", text, syscall.Errno(e.A), hint)})
		r.tellStarted(nil)
	case evExited:
		result := cell.Result{ExitCode: int(e.A)}
		if len(text) > 0 {
			result.Failed = errors.New(string(text))
		}
		r.set(result)
	case evAttached:
		r.pass(cell.Event{Kind: cell.Attached})
	case evDetached:
		r.pass(cell.Event{Kind: cell.Detached})
	}
}

// pass drops an event that nobody reads: none of them is needed for a decision.
func (r *running) pass(e cell.Event) {
	select {
	case r.events <- e:
	default:
	}
}

func (r *running) tellStarted(err error) {
	select {
	case r.started <- err:
	default:
	}
}

// set keeps the first end of the cell.
func (r *running) set(result cell.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.exited {
		r.result, r.exited = result, true
	}
}

// close removes the cell's cgroups and takes what they counted.
func (r *running) close() {
	r.set(cell.Result{ExitCode: exitFailed, Failed: cell.ErrWarden})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	reply, _, err := r.driver.call(ctx, proto.Request{Close: &proto.Close{Cell: r.id}})
	// A killed warden is gone before the last process of its cell is: the groups are the last to know.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for err != nil && ctx.Err() == nil && !closed(r.driver.gone) {
		<-tick.C
		reply, _, err = r.driver.call(ctx, proto.Request{Close: &proto.Close{Cell: r.id}})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || reply.Usage == nil {
		r.result.Left = fmt.Errorf("remove the control groups of the cell: %w", err)
		return
	}
	r.result.Usage = usage(reply.Usage)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (r *running) send(c command, files ...*os.File) error {
	var message bytes.Buffer
	if err := binary.Write(&message, binary.NativeEndian, c); err != nil {
		return fmt.Errorf("encode a command to the warden: %w", err)
	}
	return sys.SendFDs(r.control, message.Bytes(), files...)
}

// Signal asks PID 1 to pass the signal on.
func (r *running) Signal(number int) error {
	return r.send(command{Kind: cmdSignal, A: int32(number)})
}

// deafAfter is more than a warden takes to hand the last output of a killed agent to
// a client that hardly reads.
const deafAfter = 8 * time.Second

// Kill ends the cell at once; if the warden does not hear, it is ended, and its
// cell with it (L20).
func (r *running) Kill() error {
	if err := r.send(command{Kind: cmdKill}); err != nil {
		return r.warden.Kill()
	}
	deaf := time.AfterFunc(deafAfter, func() { _ = r.warden.Kill() })
	go func() {
		<-r.done
		deaf.Stop()
	}()
	return nil
}

// Attach hands a client over.
func (r *running) Attach(client *os.File) error { return r.send(command{Kind: cmdAttach}, client) }

// WardenPid is the warden's number on the host, for tests and messages only.
func (r *running) WardenPid() int { return r.warden.pid }

// Events delivers until the cell is done.
func (r *running) Events() <-chan cell.Event { return r.events }

// Done is closed when every process of the cell is gone.
func (r *running) Done() <-chan struct{} { return r.done }

// Unseen is what the cell's processes hold open that has no name.
func (r *running) Unseen(ctx context.Context, disk *os.File) (int64, error) {
	reply, _, err := r.driver.call(ctx, proto.Request{Unseen: &proto.Unseen{}}, r.warden.pidfd, disk)
	return reply.Unseen, err
}

// Enforced says which limits hold.
func (r *running) Enforced() cell.Enforced { return r.enforced }

// Result is valid after Done.
func (r *running) Result() cell.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result
}
