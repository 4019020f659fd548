// Package lifeline is the conversation of skepd and a box beside their link, for what
// comes with a descriptor: when one of the programs is replaced under a running cell
// (cell.md, L20a), and when its owner reaches the agent (boundary.md, B178). It is a
// seqpacket socket over which whole messages and descriptors pass, so that it has no
// state between two orders and can be handed on.
//
//	skepd                       box
//	order [+ 1 descriptor] ->
//	                       <-   done, or why not
//
// Its laws:
//   - One order is under way at a time, and each is answered once.
//   - No descriptor comes from a box.
//   - A box that says anything else is not trusted any more: the conversation ends.
package lifeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"skep.dev/skep/internal/sys"
)

// Order is what a box is told to do.
type Order byte

// The orders.
const (
	Move     Order = 'l' // + stream socket: speak to skepd over it from now on
	Model    Order = 'm' // + stream socket: speak to the model gateway over it from now on
	HandOver Order = 'h' // + seqpacket socket: stop accepting, and give what you serve to the box behind it
	Keep     Order = 'k' // that box did not get ready: go on as before
	Part     Order = 'p' // that box serves: end when your last flow has
	Forward  Order = 'f' // + seqpacket socket: deliver what comes over it (package forwarding)
	Secrets  Order = 's' // + sealed memory: these are the values of the cell's secrets from now on
)

func (o Order) descriptors() int {
	switch o {
	case Move, Model, HandOver, Forward, Secrets:
		return 1
	case Keep, Part:
	}
	return 0
}

const (
	done    = 'y'
	refused = 'n'
	maxText = 512 // bytes of a reason
)

var (
	// ErrGone says that the other end is gone.
	ErrGone = errors.New("the lifeline has ended")

	// ErrRefused says that the box has not done what it was told.
	ErrRefused = errors.New("the box says no")

	errNonsense = errors.New("what came over the lifeline is no message of it")
)

// Asker is skepd's end.
type Asker struct {
	sock *os.File
	gone chan struct{}
	turn chan struct{} // holds a value while no order is under way

	mu      sync.Mutex
	waiting chan error
	why     error // why it ended
}

// NewAsker takes sock over. Run reads the answers, and closes it.
func NewAsker(sock *os.File) *Asker {
	a := &Asker{sock: sock, gone: make(chan struct{}), turn: make(chan struct{}, 1)}
	a.turn <- struct{}{}
	return a
}

// Begin gives an order; the channel gets its answer, however late. The file stays the
// caller's. An order that is under way is waited for.
func (a *Asker) Begin(ctx context.Context, o Order, files ...*os.File) (<-chan error, error) {
	select {
	case <-a.turn:
	case <-a.gone:
		return nil, a.end(nil)
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for an earlier order to the box: %w", ctx.Err())
	}
	c := make(chan error, 1)
	a.mu.Lock()
	a.waiting = c
	a.mu.Unlock()
	if err := sys.SendFDs(a.sock, []byte{byte(o)}, files...); err != nil {
		return nil, a.end(err) // a message goes whole or not at all, and to a box that is there always
	}
	return c, nil
}

// Ask is Begin and the wait for the answer.
func (a *Asker) Ask(ctx context.Context, o Order, files ...*os.File) error {
	answer, err := a.Begin(ctx, o, files...)
	if err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the box: %w", ctx.Err())
	}
}

// File is the socket: for a skepd that hands it on while no order is under way.
func (a *Asker) File() *os.File { return a.sock }

// Close ends the conversation when Run has taken what the box has answered by now: one that
// has said its last elsewhere may have been asked here before.
func (a *Asker) Close() {
	a.mu.Lock()
	over := a.why != nil
	a.mu.Unlock()
	if over {
		return
	}
	if err := sys.EndReads(a.sock); err != nil {
		_ = a.end(ErrGone)
	}
}

// Run takes answers until there can be no more: the box is gone, spoke nonsense, or we
// have closed the conversation.
func (a *Asker) Run() {
	buf := make([]byte, 1+maxText)
	for {
		n, _, err := sys.RecvFDs(a.sock, buf, 0)
		switch {
		case err != nil:
		case n == 0:
			err = ErrGone
		default:
			err = a.answered(buf[:n])
		}
		if err != nil {
			_ = a.end(err)
			return
		}
	}
}

// answered hands an answer to whoever waits for one.
func (a *Asker) answered(m []byte) error {
	var answer error
	switch {
	case m[0] == done && len(m) == 1:
	case m[0] == refused:
		answer = fmt.Errorf("%w: %q", ErrRefused, m[1:])
	default:
		return errNonsense
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		return errNonsense
	}
	a.waiting <- answer
	a.waiting = nil
	a.turn <- struct{}{}
	return nil
}

// end ends the conversation once, and says why it ended.
func (a *Asker) end(why error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.why == nil {
		a.why = fmt.Errorf("speak to the box: %w", why)
		close(a.gone)
		_ = a.sock.Close()
		if a.waiting != nil {
			a.waiting <- a.why
			a.waiting = nil
		}
	}
	return a.why
}

// Next waits for an order, on the box's end. The file, if there is one, is the caller's.
func Next(sock *os.File) (Order, *os.File, error) {
	buf := make([]byte, 2)
	n, files, err := sys.RecvFDs(sock, buf, 1)
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("wait for an order: %w", err)
	case n == 0:
		return 0, nil, ErrGone
	}
	o := Order(buf[0])
	known := o == Move || o == Model || o == HandOver || o == Keep || o == Part || o == Forward || o == Secrets
	if n != 1 || !known || len(files) != o.descriptors() {
		sys.CloseAll(files)
		return 0, nil, errNonsense
	}
	if len(files) == 0 {
		return o, nil, nil
	}
	return o, files[0], nil
}

// Answer tells that the order was carried out, or why not.
func Answer(sock *os.File, why error) error {
	m := []byte{done}
	if why != nil {
		text := why.Error()
		m = append([]byte{refused}, text[:min(len(text), maxText)]...)
	}
	return sys.SendFDs(sock, m)
}
