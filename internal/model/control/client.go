package control

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/sys"
)

// Records makes an entry of a cell durable before it returns. It is called in
// parallel. The body is a *kind.ModelAdmitted or a *kind.ModelSettled.
type Records func(ctx context.Context, cell string, body kind.Body) error

// Client is skepd's end.
type Client struct {
	sock    *os.File
	records Records
	asked   questions
	done    chan struct{}
	err     error // valid once done is closed
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup // records that are not answered yet

	mu     sync.Mutex
	cells  map[string]bool // that were given and have not ended
	silent chan struct{}   // not nil from Pause on; closed when nobody reads any more
}

// NewClient begins the conversation on sock, which it takes over.
func NewClient(sock *os.File, records Records) *Client { return Inherit(sock, records, nil) }

// Inherit goes on with the conversation that another client left, which had given these
// cells.
func Inherit(sock *os.File, records Records, cells []string) *Client {
	c := &Client{sock: sock, records: records, done: make(chan struct{}), cells: map[string]bool{}}
	for _, id := range cells {
		c.cells[id] = true
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.read()
	return c
}

// Pause returns when every question and every record has its answer, and nobody reads
// any more until Resume: then whoever has the socket can go on. Nobody may ask
// meanwhile. After an error nothing is paused.
func (c *Client) Pause(ctx context.Context) error {
	select {
	case <-c.asked.settled():
	case <-ctx.Done():
		return fmt.Errorf("pause the conversation with skep-model: %w", ctx.Err())
	}
	silent := make(chan struct{})
	c.mu.Lock()
	c.silent = silent
	c.mu.Unlock()
	if err := c.sock.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return fmt.Errorf("pause the conversation with skep-model: %w", err)
	}
	select {
	case <-silent:
		c.work.Wait()
		return c.sock.SetReadDeadline(time.Time{})
	case <-c.done:
		return fmt.Errorf("pause the conversation with skep-model: %w", ErrEnded)
	}
}

// Resume goes on where Pause stopped.
func (c *Client) Resume() { go c.read() }

// Leave is the socket, which stays the client's, and the cells for an heir.
func (c *Client) Leave() (sock *os.File, cells []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sock, slices.Sorted(maps.Keys(c.cells))
}

// Done is closed when skep-model is gone; every cell has then lost its models.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err says why Done was closed; nil before.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the conversation, and skep-model with it.
func (c *Client) Close() error {
	err := c.sock.Close()
	<-c.done
	return err
}

// Config replaces targets and roles. The files stay the caller's. At most
// sys.MaxPassedFDs of them go in one configuration.
func (c *Client) Config(ctx context.Context, cfg Config) error {
	out := Config{Targets: map[string]Target{}, Roles: cfg.Roles}
	var files []*os.File
	for _, name := range sortedKeys(cfg.Targets) {
		t := cfg.Targets[name]
		t.Slot = 0
		if t.File != nil {
			files = append(files, t.File)
			t.Slot = len(files)
		}
		out.Targets[name] = t
	}
	if err := c.ask(ctx, message{Op: opConfig, Setup: &out}, files...); err != nil {
		return fmt.Errorf("configure skep-model: %w", err)
	}
	return nil
}

// AddCell gives skep-model one end of a stream socket pair on which the cell's
// box speaks HTTP. conn stays the caller's, who closes it. A second connection
// of a cell that has not ended keeps the amounts of the first.
func (c *Client) AddCell(ctx context.Context, cell Cell, conn *os.File) error {
	c.mu.Lock()
	known := c.cells[cell.ID]
	c.cells[cell.ID] = true
	c.mu.Unlock()
	err := c.ask(ctx, message{Op: opCell, Cell: &cell}, conn)
	if err != nil {
		if !known {
			c.forget(cell.ID)
		}
		return fmt.Errorf("give cell %s to skep-model: %w", cell.ID, err)
	}
	return nil
}

// EndCell breaks off the cell's calls and forgets its amounts. It returns when the
// last of them has been recorded.
func (c *Client) EndCell(ctx context.Context, id string) error {
	if err := c.ask(ctx, message{Op: opEnd, Whose: id}); err != nil {
		return fmt.Errorf("end cell %s at skep-model: %w", id, err)
	}
	c.forget(id)
	return nil
}

func (c *Client) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cells, id)
}

// ask sends a message and waits for its answer.
func (c *Client) ask(ctx context.Context, m message, files ...*os.File) error {
	return ask(ctx, c.sock, &c.asked, m, files...)
}

func ask(ctx context.Context, sock *os.File, q *questions, m message, files ...*os.File) error {
	id, answer, err := q.ask()
	if err != nil {
		return err
	}
	m.ID = id
	if err := send(sock, m, files...); err != nil {
		return err
	}
	select {
	case text, ok := <-answer:
		switch {
		case !ok:
			return ErrEnded
		case text != "":
			return errors.New(text)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read takes messages until the conversation ends, or is paused. It never waits for
// anything else, so that the other end can always send.
func (c *Client) read() {
	var err error
	for err == nil {
		var m message
		var files []*os.File
		m, files, err = receive(c.sock)
		sys.CloseAll(files) // skep-model has none to give
		if sys.IsTimeout(err) {
			c.mu.Lock()
			defer c.mu.Unlock()
			close(c.silent)
			return
		}
		if err != nil {
			break
		}
		switch m.Op {
		case opDone:
			err = c.asked.answer(m.ID, m.Error)
		case opRecord:
			var body kind.Body
			if body, err = c.entry(m); err == nil {
				c.work.Go(func() { c.record(c.ctx, m, body) })
			}
		default:
			err = errProtocol
		}
	}
	c.cancel()
	_ = c.sock.Close()
	c.asked.end(ErrEnded)
	c.work.Wait()
	c.err = err
	close(c.done)
}

// entry reads a record strictly: its kind must be one of two, and its cell one
// that skep-model was given.
func (c *Client) entry(m message) (kind.Body, error) {
	c.mu.Lock()
	known := c.cells[m.Whose]
	c.mu.Unlock()
	if !known {
		return nil, fmt.Errorf("record for a cell that it does not have: %w", errProtocol)
	}
	var body kind.Body
	switch kind.Kind(m.Kind) {
	case kind.KindModelAdmitted:
		body = new(kind.ModelAdmitted)
	case kind.KindModelSettled:
		body = new(kind.ModelSettled)
	default:
		return nil, fmt.Errorf("record of another kind: %w", errProtocol)
	}
	if err := json.Unmarshal(m.Body, body, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("record that cannot be read: %w", errProtocol)
	}
	return body, nil
}

// record answers once the entry is durable, or says that it is not.
func (c *Client) record(ctx context.Context, m message, body kind.Body) {
	answer := message{Op: opRecorded, ID: m.ID}
	if err := c.records(ctx, m.Whose, body); err != nil {
		answer.Error = short(err.Error())
	}
	// A conversation that ended in between needs no answer.
	_ = send(c.sock, answer)
}

func short(s string) string { return s[:min(len(s), 1000)] }

func sortedKeys(m map[string]Target) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
