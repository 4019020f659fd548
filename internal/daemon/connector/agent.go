package connector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"skep.dev/skep/internal/boundary/link"
	"skep.dev/skep/internal/bundle"
	"skep.dev/skep/internal/daemon/connector/metrics"
	"skep.dev/skep/internal/daemon/furniture/trust"
	"skep.dev/skep/internal/daemon/secrets"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/sys"
)

// Bounds of what is asked of a box (B150).
const (
	installWithin = 10 * time.Second // also its start
	askWithin     = 2 * time.Second
	sendWithin    = 5 * time.Second
	endWithin     = 10 * time.Second
)

var errGone = errors.New("the box has ended")

// running is one box and what it was told.
type running struct {
	who     identity
	sink    Sink
	counts  *metrics.Counts
	open    map[string]int64 // flows by transport, as the records have it; hear's own
	socket  string
	below   string       // the directory that is the socket's alone, or ""
	publish func() error // has the socket found

	ingress string       // where callers come to, or ""
	found   func() error // has that socket found
	dials   *os.File     // by which the box asks for the agent's side, or nil
	guest   string       // where that is

	conn *link.Conn
	file *os.File // of conn
	cmd  *exec.Cmd

	line    *lifeline.Asker
	trusted chan []byte
	secrets *secrets.Cell // nil without
	trust   []byte        // what a cell with secrets is to trust, PEM

	asking    sync.Mutex // one question at a time
	installed chan link.Installed
	status    chan link.Status
	gone      chan struct{} // its process has ended, and its socket is removed
	ended     error         // set before gone is closed: nil after an order to end
}

// start makes the socket, starts a box behind it, and waits until that serves under the
// policy. Nobody finds the socket before it is published.
func start(ctx context.Context, c *Connector, who identity, socket string, p policy.Policy, serves *bundle.Serves, own *secrets.Cell) (_ *running, err error) {
	defer func() {
		if err != nil {
			own.Close()
		}
	}()
	egress, publish, err := Prepare(socket, c.owner())
	if err != nil {
		return nil, err
	}
	defer func() { _ = egress.Close() }()
	who.Listener = socket
	r := &running{
		below: c.own(socket), publish: publish,
		who: who, sink: c.Sink, counts: c.Counts, open: map[string]int64{}, socket: socket, installed: make(chan link.Installed, 1), status: make(chan link.Status, 1),
		gone: make(chan struct{}), secrets: own, trusted: make(chan []byte, 1),
	}
	files := []*os.File{egress}
	if serves != nil {
		more, err := r.serves(c, who.Sandbox)
		defer sys.CloseAll(more)
		if err != nil {
			r.tidy()
			return nil, err
		}
		files = append(files, more...)
	}
	if err := r.spawn(c, files); err != nil {
		r.tidy()
		return nil, err
	}
	go r.hear()
	assign := link.Assign{
		Cell: who.Sandbox, Agent: who.Agent, Generation: who.Generation, UDP: c.UDP, Flows: c.Flows, Head: c.Head, Idle: c.Idle, Policy: p, Names: c.names(),
		Serves:  c.served(serves),
		Secrets: own.Bound(),
	}
	given := make(chan error, 1)
	if own != nil {
		assign.Roots = trust.Roots(p.Ceiling.Roots)
		go func() { given <- r.entrust(ctx) }()
	}
	err = r.install(ctx, link.Order{Assign: &assign})
	if own != nil && err == nil {
		err = <-given
	}
	if err != nil {
		r.kill()
		return nil, err
	}
	if own != nil {
		go r.watchSecrets()
	}
	return r, nil
}

// spawn starts the program with its descriptors and nothing else.
func (r *running) spawn(c *Connector, more []*os.File) error {
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }()
	line, lineEnd, err := sys.SeqpacketPair()
	if err != nil {
		_ = ours.Close()
		return err
	}
	defer func() { _ = lineEnd.Close() }()
	r.line = lifeline.NewAsker(line)
	go r.line.Run()
	r.file, r.conn = ours, link.New(ours)
	r.cmd = exec.Command(c.Box, "tunnel")
	r.cmd.Env, r.cmd.Dir, r.cmd.Stderr = []string{}, "/", os.Stderr
	r.cmd.ExtraFiles = slices.Concat([]*os.File{theirs, more[0], lineEnd}, more[1:])
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.User} // a terminal's interrupt is ours to answer
	if err := r.cmd.Start(); err != nil {
		_ = ours.Close()
		r.line.Close()
		return fmt.Errorf("start the box: %w", err)
	}
	return nil
}

// hear does what the box asks, until it ends. Its socket goes with it.
func (r *running) hear() {
	done, err := r.words()
	r.signal() // it may not live on unheard
	if how := r.cmd.Wait(); errors.Is(err, io.EOF) {
		err = errors.Join(errGone, how)
	}
	r.tidy()
	r.counts.Gone(r.open)
	_ = r.file.Close()
	r.line.Close()
	r.secrets.Close()
	if !done {
		r.ended = err
	}
	close(r.gone)
}

// tidy removes the socket, and its directory if that was made for it.
func (r *running) tidy() {
	if !strings.HasPrefix(r.socket, onTCP) {
		_, _ = os.Remove(r.socket+unnamed), os.Remove(r.socket)
	}
	if r.below != "" {
		_ = os.Remove(r.below) // unless something else is in it
	}
	if r.ingress != "" {
		_, _ = os.Remove(r.ingress+unnamed), os.Remove(r.ingress)
	}
	if r.dials != nil {
		_ = r.dials.Close()
	}
}

// signal kills the process; that it has gone is for Wait to say.
func (r *running) signal() { _ = r.cmd.Process.Kill() }

// words is whether the box has ended its flows and recorded them, or why it is heard no more.
func (r *running) words() (done bool, err error) {
	for {
		var w link.Word
		if err := r.conn.Receive(&w); err != nil {
			return false, err
		}
		switch {
		case w.Batch != nil && !w.Batch.Valid():
			return false, errors.New("the box sent what are no records")
		case w.Batch != nil:
			err := r.sink.append(r.who, w.Batch.Records)
			r.tally(w.Batch.Records, err)
			if err := r.send(link.Order{Wrote: &link.Wrote{Batch: w.Batch.Number, OK: err == nil}}); err != nil {
				return false, err
			}
		case w.Trust != nil:
			offer(r.trusted, w.Trust)
		case w.Installed != nil:
			offer(r.installed, *w.Installed)
		case w.Status != nil:
			offer(r.status, *w.Status)
		case w.Done:
			return true, nil
		default:
			return false, errors.New("the box said nothing that is understood")
		}
	}
}

// tally counts what was written, once.
func (r *running) tally(records []link.Record, err error) {
	if err != nil {
		r.counts.Unwritten(len(records))
		return
	}
	for _, one := range records {
		r.counts.Record(one, r.open)
	}
}

// send sends an order. A box that does not take it in time is killed: whoever waits for
// it must not wait longer, and half a message cannot be taken back.
func (r *running) send(o link.Order) error {
	_ = r.file.SetWriteDeadline(time.Now().Add(sendWithin))
	if err := r.conn.Send(o); err != nil {
		r.signal()
		return errGone
	}
	return nil
}

// offer leaves an answer for whoever asked; one that nobody asked for is dropped.
func offer[T any](to chan T, v T) {
	select {
	case to <- v:
	default:
	}
}

// install has the box take an order that it answers with Installed.
func (r *running) install(ctx context.Context, o link.Order) error {
	a, err := ask(ctx, r, o, r.installed, installWithin)
	switch {
	case err != nil:
		return fmt.Errorf("install a policy: %w", err)
	case a.Fault != "":
		return fmt.Errorf("the box refused the policy: %s", a.Fault)
	}
	return nil
}

// ask sends an order and waits for its answer.
func ask[T any](ctx context.Context, r *running, o link.Order, answers chan T, within time.Duration) (answer T, err error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	select {
	case <-answers: // of an earlier question that nobody waited for
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := r.send(o); err != nil {
		return answer, err
	}
	select {
	case answer = <-answers:
		return answer, nil
	case <-r.gone:
		return answer, errGone
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// end has the box end its flows and record them, and is back when it is gone. One that
// takes too long is killed first (B150).
func (r *running) end() {
	late := time.AfterFunc(endWithin, r.signal)
	defer late.Stop()
	_ = r.send(link.Order{End: true}) // or it is killed
	<-r.gone
}

// kill ends the box at once, and is back when it is gone.
func (r *running) kill() {
	r.signal()
	<-r.gone
}
