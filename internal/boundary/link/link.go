// Package link is what a box that serves tunnels and the connector that started it say to
// each other (boundary.md, section 18): on one stream socket, whole messages of JSON, each
// behind its length in four bytes.
//
// Its laws:
//   - What is not understood is an error, and the end of the link: a rule that is not
//     understood must not be dropped (B88).
//   - A message has a bound, which is looked at before its bytes are read.
//   - The box says nothing about who it serves: that is the connector's own word (B33).
package link

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/tunnel"
)

// MaxMessage bounds a message, in bytes; MaxRecords those of one batch.
const (
	MaxMessage = 4 << 20
	MaxRecords = boundary.RecordBatch
)

var (
	errTooLarge = errors.New("a message is larger than 4 MiB")
	errTrailing = errors.New("a message holds more than one value")
	errUnread   = errors.New("a message is not understood") // never io.EOF, which is an end between two
)

// Names is what the host knows about names and about itself (B101, B105).
type Names struct {
	Resolvers []netip.AddrPort        `json:"resolvers,omitempty"`
	Hosts     map[string][]netip.Addr `json:"hosts,omitempty"`
	Own       []netip.Addr            `json:"own,omitempty"`
}

// Assign is the cell that a box serves, the first message to it.
type Assign struct {
	Cell       string        `json:"cell"`
	Agent      string        `json:"agent"`
	Generation uint64        `json:"generation"`
	UDP        bool          `json:"udp"`
	Flows      int           `json:"flows"` // 0: the most there may be
	Head       time.Duration `json:"head"`  // for a head; 0: the default
	Idle       time.Duration `json:"idle"`  // 0: the default
	Policy     policy.Policy `json:"policy"`
	Names      Names         `json:"names"`
	// Secrets are the bindings of the cell, without their sources; Roots, PEM, vouch for where
	// they go. The values come over the lifeline.
	Secrets []secret.Bound `json:"secrets,omitempty"`
	Roots   []byte         `json:"roots,omitempty"`
	Serves  *Serves        `json:"serves,omitempty"` // then the box has an ingress socket and a Dialer
}

// Serves is how an agent that serves itself is reached (B170, B172). The port is in the
// policy, too.
type Serves struct {
	Name    string      `json:"name"`
	Port    uint16      `json:"port"`
	Form    tunnel.Form `json:"form"`    // of the handshake on the reverse channel
	Monitor uint32      `json:"monitor"` // vsock port that a VM's monitor is asked for first; 0 without one
	Callers []uint32    `json:"callers"` // users who may call
}

// Order is a message to the box: one of its fields is set.
type Order struct {
	Assign *Assign        `json:"assign,omitempty"`
	Policy *policy.Policy `json:"policy,omitempty"` // is answered by Installed, or by a Fault
	Names  *Names         `json:"names,omitempty"`
	Wrote  *Wrote         `json:"wrote,omitempty"`
	Ask    bool           `json:"ask,omitempty"` // is answered by Status
	End    bool           `json:"end,omitempty"` // is answered by Done, once every flow is over and recorded
}

// Wrote answers a batch: it is durable, or not.
type Wrote struct {
	Batch uint64 `json:"batch"`
	OK    bool   `json:"ok"`
}

// Word is a message of the box: one of its fields is set.
type Word struct {
	Installed *Installed `json:"installed,omitempty"` // also: it serves (B163)
	Trust     []byte     `json:"trust,omitempty"`     // PEM: what a cell with secrets is to trust; before the first Installed
	Batch     *Batch     `json:"batch,omitempty"`
	Status    *Status    `json:"status,omitempty"`
	Done      bool       `json:"done,omitempty"`
}

// Installed answers a policy: its version, or what is wrong with it. Then the old one stays.
type Installed struct {
	Version string `json:"version"`
	Fault   string `json:"fault,omitempty"`
}

// Batch is records to be made durable.
type Batch struct {
	Number  uint64   `json:"number"`
	Records []Record `json:"records"`
}

// Valid reports whether these are records of a box, as many as one message may hold:
// what the connector itself did is not for a box to write.
func (b Batch) Valid() bool {
	kinds := []string{"intent", "outcome", "denied", "held", "secret"}
	return len(b.Records) <= MaxRecords && !slices.ContainsFunc(b.Records, func(r Record) bool { return !slices.Contains(kinds, r.Kind) })
}

// Status is how it stands.
type Status struct {
	Flows      int    `json:"flows"`
	Denials    uint64 `json:"denials"`
	Advertised bool   `json:"advertised"` // the agent's card was there at the last probe (B177)
}

// Record is one record of the boundary without who it is about (B191). Every string in it
// is ours or normalised.
type Record struct {
	Kind        string    `json:"kind"` // intent, outcome, denied or held; secret: one is used, or was misused
	Time        time.Time `json:"ts"`
	Policy      string    `json:"policy"`
	Wire        string    `json:"wire"`
	Transport   string    `json:"transport"`
	Direction   string    `json:"direction"`
	Destination string    `json:"destination"`
	Address     string    `json:"address,omitempty"` // only if connected
	Peer        string    `json:"peer,omitempty"`
	Connection  string    `json:"connection,omitempty"`
	Rule        string    `json:"rule,omitempty"`
	Decision    string    `json:"decision"` // allow, block or fail
	Reason      string    `json:"reason,omitempty"`
	Flow        string    `json:"flow"`
	Line        int       `json:"line,omitempty"`
	AllowWith   string    `json:"allow_with,omitempty"`
	Inner       *Inner    `json:"inner,omitempty"`
	Count       uint64    `json:"count"`
	Dropped     int       `json:"dropped,omitempty"`
	Secret      string    `json:"secret,omitempty"`   // its name
	Place       string    `json:"place,omitempty"`    // where in a request, as a bundle writes it
	Bytes       *Bytes    `json:"bytes,omitempty"`    // of an outcome
	SetupMillis int64     `json:"setup_ms,omitempty"` // until the destination was reached
	Millis      int64     `json:"ms,omitempty"`
}

// Inner is what the agent's first bytes asked for.
type Inner struct {
	Protocol string `json:"protocol"`
	Name     string `json:"name,omitempty"`
	ALPN     string `json:"alpn,omitempty"`
}

// Bytes is what a flow carried.
type Bytes struct {
	Up   uint64 `json:"up"`
	Down uint64 `json:"down"`
}

// RecordOf is the wire form of a record.
func RecordOf(r boundary.Record) Record {
	q, v := r.Request, r.Verdict
	out := Record{
		Kind: map[boundary.Kind]string{boundary.Intent: "intent", boundary.Outcome: "outcome", boundary.Denied: "denied", boundary.Held: "held"}[r.Kind],
		Time: r.Time.UTC(), Policy: r.Policy, Wire: q.Wire.String(), Transport: q.Transport.String(), Direction: q.Direction.String(),
		Destination: q.Destination(), Peer: q.Peer, Rule: v.Rule, Decision: r.Decision, Reason: v.Reason.Token(), Flow: q.ID.String(),
		Line: v.Line, AllowWith: v.AllowWith, Count: q.Count, Dropped: r.Dropped, Millis: r.Duration.Milliseconds(), SetupMillis: r.Setup.Milliseconds(),
	}
	if q.Conn != (flow.ID{}) {
		out.Connection = q.Conn.String()
	}
	if r.Address.IsValid() {
		out.Address = r.Address.String()
	}
	if q.Inner.Protocol != flow.Unread {
		out.Inner = &Inner{Protocol: q.Inner.Protocol.String(), Name: q.Inner.Name, ALPN: q.Inner.ALPN}
	}
	if r.Kind == boundary.Outcome {
		out.Bytes = &Bytes{Up: r.Up, Down: r.Down}
	}
	return out
}

// Conn is one end. Send may be called by several at once, Receive by one.
type Conn struct {
	in  *bufio.Reader
	out io.Writer
	mu  sync.Mutex
}

// New speaks over a stream, which stays the caller's to close.
func New(s io.ReadWriter) *Conn { return &Conn{in: bufio.NewReader(s), out: s} }

// Send sends one message.
func (c *Conn) Send(message any) error {
	body, err := json.Marshal(message)
	switch {
	case err != nil:
		return fmt.Errorf("write a message: %w", err)
	case len(body) > MaxMessage:
		return errTooLarge
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.out.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// Receive waits for one message; io.EOF is an end between two.
func (c *Conn) Receive(into any) error {
	var head [4]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > MaxMessage {
		return errTooLarge
	}
	var body bytes.Buffer // grows as bytes come: a length alone takes no memory
	if _, err := io.CopyN(&body, c.in, int64(size)); err != nil {
		return io.ErrUnexpectedEOF
	}
	d := json.NewDecoder(&body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %s", errUnread, err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}
