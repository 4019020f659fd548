package streams

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2/frame"
	"skep.dev/skep/internal/secret"
)

// The limits of one connection.
const (
	maxStreams  = 256              // open at once
	perStream   = 4 << 10          // bytes of a cell's room that one is counted as
	maxResets   = 100              // streams that the agent takes back, or that are refused, a second
	maxIdle     = 1000             // frames of the agent that carry nothing, a second
	maxUnacked  = 16               // settings that a peer has not acknowledged
	enough      = 32 << 10         // bytes that wait to be written; no more is read then
	maxWaiting  = 1 << 20          // bytes that wait although
	ownAnswers  = 4 << 10          // bytes of the agent's window for answers of ours
	meetTime    = 10 * time.Second // until both have sent their settings
	finishTime  = 10 * time.Second // for the last frames to be written
	answerBytes = 256              // of a sentence of ours, at most
	small       = 128              // bytes, of a frame or two without data
)

// Room is what a cell has for what is read whole and kept, in bytes.
type Room interface {
	Take(n int) bool
	Give(n int)
}

// Rules are what requests and answers of a connection are judged by.
type Rules struct {
	Host   string // the permitted name
	Port   uint16
	Keeper *secret.Keeper
	Now    func() time.Time
	// Decide judges a request by its authority, method and path (B127).
	Decide func(authority, method, path string) flow.Reason
	// Record writes a use or misuse down. A use that it does not write is not sent.
	Record func(use secret.Use, why flow.Reason) error
	// Flow is a field that each request carries, with an empty name for none (B84).
	Flow secret.Field
	Room Room
	// Failed is why each request is refused: the destination is not who it should be.
	Failed flow.Reason
}

// Ends are the two sides of a connection. StopAgent and StopDestination end a Read that
// waits, and every later one; Cut ends both sides at once.
type Ends struct {
	Agent, Destination              io.ReadWriter
	StopAgent, StopDestination, Cut func()
}

// conn is one connection.
type conn struct {
	Rules
	Ends
	fromAgent, fromUp frame.Reader
	requests, answers *heads // of the one loop each

	mu            sync.Mutex
	toAgent, toUp outbox
	streams       map[uint32]*stream // by the agent's number
	byUp          map[uint32]*stream
	lastAgent     uint32 // the newest of the agent's numbers
	lastUp        uint32

	granted, window int64 // as a stream has them, for all together
	pending         int64 // bytes that wait for the destination's window, of all streams
	initial         int64 // what a stream may send to the destination when it begins
	back            int64 // what one may send to the agent
	reserve         int64 // of the agent's window, for answers of ours

	agentSettings int     // of the agent, that the destination has not acknowledged
	upSettings    []int64 // by how much such of the destination will make windows smaller
	newTable      bool    // to be said to the destination in the next block
	newBackTable  bool
	connects      bool // a WebSocket may be opened
	leaving       bool // the destination takes no new stream
	second        time.Time
	resets, idle  int // in this second
	refusals      int // the same
	failure       error
	refused       flow.Reason // the first
}

var errOver = errors.New("the connection has ended")

// Carry carries a connection until one side has ended it. The reason is why it was cut,
// or why the first request was refused; errors are of the connections.
func Carry(e Ends, r Rules) (flow.Reason, error) {
	c := &conn{
		Rules: r, Ends: e, fromAgent: frame.Reader{From: e.Agent}, fromUp: frame.Reader{From: e.Destination},
		requests: newHeads(maxRequest), answers: newHeads(maxAnswerHead),
		streams: map[uint32]*stream{}, byUp: map[uint32]*stream{},
		granted: frame.FirstWindow, window: frame.FirstWindow, initial: frame.FirstWindow, back: frame.FirstWindow,
	}
	c.toAgent, c.toUp = newOutbox(&c.mu), newOutbox(&c.mu)
	late := time.AfterFunc(meetTime, e.Cut)
	err := c.meet()
	if !late.Stop() {
		return flow.HeadTimeout, errors.Join(errOver, err)
	}
	if err != nil {
		return flow.None, err
	}
	return c.run()
}

// run has one goroutine for each direction that is read, and one for each that is written.
func (c *conn) run() (flow.Reason, error) {
	var writers, readers sync.WaitGroup
	writers.Go(func() {
		if err := c.toAgent.write(&c.mu, c.Agent, func() {}); err != nil {
			if boundary.EndedBy(err) == flow.None {
				err = errOver // an agent that takes no more has left
			}
			c.end(err)
			c.StopAgent()
			c.StopDestination()
		}
	})
	if c.Failed == flow.None {
		writers.Go(func() {
			// One that takes no more may still have answered: then its last frame is the end.
			if err := c.toUp.write(&c.mu, c.Destination, c.flushAll); boundary.EndedBy(err) != flow.None {
				c.end(err)
				c.StopAgent()
				c.StopDestination()
			}
		})
		readers.Go(func() {
			c.end(c.loop(&c.fromUp, &c.toAgent, c.answer))
			c.StopAgent()
		})
	}
	c.end(c.loop(&c.fromAgent, &c.toUp, c.ask))
	c.StopDestination()
	readers.Wait()
	c.mu.Lock()
	c.toAgent.seal()
	c.toUp.kill()
	c.mu.Unlock()
	late := time.AfterFunc(finishTime, c.Cut)
	writers.Wait()
	late.Stop()
	for _, s := range c.streams {
		c.drop(s)
	}
	return c.result()
}

// loop reads the frames of one peer while there is room for what they say to the other.
func (c *conn) loop(from *frame.Reader, to *outbox, take func(frame.Frame) error) error {
	for {
		c.mu.Lock()
		to.room(enough)
		c.toAgent.room(4 * enough) // more than the answers take, since a client may first write, then read
		over := c.toAgent.sealed || len(c.toUp.buf) > maxWaiting
		c.mu.Unlock()
		if over {
			return errOver
		}
		f, err := from.Next()
		if err == nil {
			err = take(f)
		}
		if err != nil {
			return err
		}
	}
}

// end keeps the first error of both directions, and tells both peers. After a value in
// an answer not a byte more is written.
func (c *conn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return
	}
	c.failure = err
	if errors.Is(err, secret.ErrReflected) {
		c.toAgent.kill()
		c.toUp.kill()
		c.Cut()
		return
	}
	code := uint32(frame.CodeNone)
	var f *frame.Fault
	if errors.As(err, &f) {
		code = f.Code
	}
	goodbye := func(last uint32) func([]byte) []byte {
		return func(b []byte) []byte { return appendGoAway(b, last, code) }
	}
	c.toAgent.put(goodbye(c.lastAgent))
	c.toAgent.seal()
	c.toUp.put(goodbye(0))
	c.toUp.seal()
}

// result tells an orderly end, or one that the peers know of, from others.
func (c *conn) result() (flow.Reason, error) {
	var f *frame.Fault
	switch err := c.failure; {
	case errors.Is(err, secret.ErrReflected):
		return flow.SecretReflected, err
	case errors.As(err, &f), errors.Is(err, io.EOF), errors.Is(err, errOver):
		return c.refused, nil // the peers have been told
	default:
		return flow.None, err
	}
}

func appendGoAway(b []byte, last, code uint32) []byte {
	b = frame.Append(b, frame.GoAway, 0, 0, make([]byte, 8))
	binary.BigEndian.PutUint32(b[len(b)-8:], last)
	binary.BigEndian.PutUint32(b[len(b)-4:], code)
	return b
}
