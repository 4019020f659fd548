// Package desk serves http://policy.skep.alt inside a cell: what was refused, why, and
// what would permit it; and it takes drafts of rules to a person (boundary.md, section 19).
//
// Its laws:
//   - It answers its own cell alone, and shows nothing of the policy but what the agent
//     already tried (B230).
//   - A draft names one destination exactly. The agent cannot grant or change a card, and
//     its words go to the person as a quotation (B232).
package desk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/route"
)

// Bounds (B150, B232).
const (
	maxBody   = 4 << 10
	MaxWhy    = 280 // characters
	DraftRate = 6   // a minute
	PollTime  = 60 * time.Second
)

// People take drafts and say what became of them.
type People interface {
	// Draft puts one exact destination, a name or an address, to a person, with the agent's
	// words; it returns the card's id, "" where too many are open.
	Draft(ctx context.Context, host string, port uint16, t flow.Transport, why string) (card string, err error)
	// State is what became of a card, once it is another than pending or ctx ends.
	State(ctx context.Context, card string) (string, error)
}

// draft is one exact rule that an agent asks for.
type draft struct {
	host      string // normalised name or plain address
	port      uint16
	transport flow.Transport
	why       string
}

// Dest is the desk of one cell.
type Dest struct {
	Denials *boundary.Denials
	People  People // nil where nobody takes drafts

	mu     sync.Mutex
	drafts []time.Time // within the last minute
}

// New is a desk that tells of these denials, and takes drafts to people; nil takes none.
func New(denials *boundary.Denials, people People) *Dest {
	return &Dest{Denials: denials, People: people}
}

// turn reports whether one more draft may be made now.
func (d *Dest) turn() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.drafts = slices.DeleteFunc(d.drafts, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
	if len(d.drafts) >= DraftRate {
		return false
	}
	d.drafts = append(d.drafts, now)
	return true
}

var errNoPermit = errors.New("open without a valid permit")

// Open refuses a permit that is not for the desk's name; there is nothing to dial.
func (d *Dest) Open(_ context.Context, p boundary.Permit) (boundary.Upstream, error) {
	if q := p.Request(); !p.Valid() || q.Name != name.Policy || q.Port != 80 {
		return nil, &boundary.Failure{Reason: flow.PolicyUnavailable, Err: errNoPermit}
	}
	return &session{desk: d, idle: p.Idle()}, nil
}

// session is one connection of the agent.
type session struct {
	desk     *Dest
	idle     time.Duration
	up, down uint64
}

// Address is invalid: nothing was dialed.
func (s *session) Address() netip.AddrPort { return netip.AddrPort{} }

// Dropped is 0: nothing was resolved.
func (s *session) Dropped() int { return 0 }

// Carry serves HTTP/1.x until the agent or ctx ends the connection.
func (s *session) Carry(ctx context.Context, agent net.Conn) boundary.End {
	stop := context.AfterFunc(ctx, func() { _ = agent.Close() })
	defer stop()
	in := bufio.NewReader(counted{agent, &s.up})
	for s.next(ctx, in, agent) {
	}
	_ = agent.Close()
	return boundary.End{Up: s.up, Down: s.down, Inner: flow.Inner{Protocol: flow.HTTP, Name: name.Policy}}
}

type counted struct {
	io.Reader
	n *uint64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	*c.n += uint64(n)
	return n, err
}

// next serves one request; false ends the connection.
func (s *session) next(ctx context.Context, in *bufio.Reader, agent net.Conn) bool {
	_ = agent.SetReadDeadline(time.Now().Add(s.idle))
	if _, err := in.Peek(1); err != nil {
		return false
	}
	_ = agent.SetReadDeadline(time.Now().Add(boundary.FirstBytesTime))
	h, err := route.ReadHead(in, 80, false)
	var fault *route.HeadError
	switch {
	case errors.As(err, &fault):
		_ = s.send(agent, problem(fault.Reason.Status(), fault.Reason.Sentence()), true)
		return false
	case err != nil:
		return false
	case h.Inner.Name != name.Policy:
		_ = s.send(agent, problem(misdirected, "this is "+name.Policy), true)
		return false
	}
	body := &limited{left: maxBody}
	if _, err := route.CopyBody(body, in, h); err != nil {
		if body.left < 0 {
			_ = s.send(agent, problem(tooLarge, "the body is larger than 4 KiB"), true)
		}
		return false
	}
	last := closes(h)
	return s.send(agent, s.desk.answer(ctx, h.Inner.Method, h.Inner.Path, body.buf.Bytes()), last) == nil && !last
}

// limited takes at most so many bytes.
type limited struct {
	buf  bytes.Buffer // no field of ours may be read into: io.Copy would do it
	left int
}

var errTooLarge = errors.New("too large")

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, errTooLarge
	}
	return l.buf.Write(b)
}

// closes tells whether the agent wants the connection to end with the answer.
func closes(h route.Head) bool {
	lines := strings.Split(string(h.Raw), "\r\n")
	for _, line := range lines[1:] {
		if key, value, _ := strings.Cut(line, ":"); strings.EqualFold(key, "connection") && strings.Contains(strings.ToLower(value), "close") {
			return true
		}
	}
	return strings.HasSuffix(lines[0], "HTTP/1.0")
}

// send writes one answer, without the fields of B60: it is no refusal of a flow.
func (s *session) send(agent net.Conn, a answer, last bool) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %s\r\nCache-Control: no-store\r\n", a.status, text(a.status), a.kind, strconv.Itoa(len(a.body)))
	for _, field := range a.fields {
		out.WriteString(field + "\r\n")
	}
	if last {
		out.WriteString("Connection: close\r\n")
	}
	out.WriteString("\r\n")
	if !a.noBody {
		out.Write(a.body)
	}
	_ = agent.SetWriteDeadline(time.Now().Add(boundary.FirstBytesTime))
	n, err := agent.Write(out.Bytes())
	s.down += uint64(n)
	return err
}
