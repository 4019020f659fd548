package streams

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2/frame"
	"skep.dev/skep/internal/secret"
)

const (
	mark  = "skep-secret-gh-0123abcd"
	other = "skep-secret-other-0123abcd"
	value = "v4lue-of-a-secret"
)

// tester is what *testing.T and *rapid.T both are.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

func check(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func keeper(t tester, as ...string) *secret.Keeper {
	t.Helper()
	b := secret.Binding{Name: "gh", Source: secret.Source{File: "/k"}, Hosts: []string{"api.test"}}
	for _, word := range as {
		place, err := secret.ParsePlace(word)
		check(t, err)
		b.As = append(b.As, place)
	}
	b, err := secret.NewBinding(b)
	check(t, err)
	k, err := secret.NewKeeper([]secret.Bound{{Binding: b, Placeholder: mark}})
	check(t, err)
	v, err := secret.NewValue([]byte(value))
	check(t, err)
	k.Set("gh", v, time.Time{})
	return k
}

// ample is room for what is asked for, and knows what was given back.
type ample struct {
	mu          sync.Mutex
	taken, most int
}

func (a *ample) Take(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.most > 0 && a.taken+n > a.most {
		return false
	}
	a.taken += n
	return true
}

func (a *ample) Give(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken -= n
}

// peer is one end that speaks in frames: the agent, or the destination.
type peer struct {
	t       tester
	c       net.Conn
	frames  chan frame.Frame // with their own payloads; closed at the end
	updates chan frame.Frame // those that open a window
	heads   *heads
	enc     *hpack.Encoder
	block   bytes.Buffer
	said    bytes.Buffer // all that it was sent
}

func newPeer(t tester, c net.Conn, skip int) *peer {
	p := &peer{t: t, c: c, frames: make(chan frame.Frame, 10000), updates: make(chan frame.Frame, 10000), heads: newHeads(1 << 20)}
	p.enc = hpack.NewEncoder(&p.block)
	go func() {
		defer close(p.frames)
		defer close(p.updates)
		if _, err := io.CopyN(io.Discard, c, int64(skip)); err != nil {
			return
		}
		r := frame.Reader{From: io.TeeReader(c, &p.said)}
		for {
			f, err := r.Next()
			if err != nil {
				return
			}
			f.Payload = bytes.Clone(f.Payload)
			if f.Kind == frame.WindowUpdate {
				p.updates <- f
			} else {
				p.frames <- f
			}
		}
	}()
	return p
}

func (p *peer) write(b []byte) { _, _ = p.c.Write(b) } // whoever reads finds what is missing

func (p *peer) put(kind, flags byte, stream uint32, payload []byte) {
	p.write(frame.Append(nil, kind, flags, stream, payload))
}

func (p *peer) number(kind byte, stream, n uint32) { p.write(frame.AppendNumber(nil, kind, stream, n)) }

// head writes a head of "name: value" lines, compressed as clients do.
func (p *peer) head(flags byte, stream uint32, lines ...string) {
	p.block.Reset()
	for _, line := range lines {
		name, text, _ := strings.Cut(line, ": ")
		check(p.t, p.enc.WriteField(hpack.HeaderField{Name: name, Value: text}))
	}
	p.write(frame.AppendBlock(nil, flags, stream, p.block.Bytes()))
}

// next is the next frame of some kind; all others are dropped.
func (p *peer) next(kind byte) frame.Frame {
	p.t.Helper()
	for {
		select {
		case f, ok := <-p.frames:
			if !ok {
				p.t.Fatalf("the connection has ended, and frame %d was awaited", kind)
			}
			if f.Kind == kind {
				return f
			}
			if f.Kind == frame.Headers {
				_ = p.fields(f)
			}
		case <-time.After(20 * time.Second):
			p.t.Fatalf("frame %d does not come", kind)
		}
	}
}

// fields are those of a head as one text.
func (p *peer) fields(f frame.Frame) string {
	p.t.Helper()
	block, err := f.Content()
	check(p.t, err)
	all, err := p.heads.read(block)
	check(p.t, err)
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	return b.String()
}

// lab is a connection between an agent and a destination.
type lab struct {
	agent, up *peer
	rules     Rules
	room      *ample
	uses      chan string
	end       chan flow.Reason
	err       error
}

// begin makes one whose settings are exchanged.
func begin(t tester, ofAgent, ofUp []frame.Setting, change func(*Rules), as ...string) *lab {
	t.Helper()
	l := &lab{room: &ample{}, uses: make(chan string, 1000), end: make(chan flow.Reason, 1)}
	a, agentEnd := net.Pipe()
	u, upEnd := net.Pipe()
	stop := func(c net.Conn) func() { return func() { _ = c.SetReadDeadline(time.Unix(1, 0)) } }
	l.rules = Rules{
		Host: "api.test", Port: 443, Keeper: keeper(t, as...), Now: time.Now, Room: l.room,
		Decide: func(authority, _, path string) flow.Reason {
			switch {
			case authority != "api.test":
				return flow.HTTPHostMismatch
			case path == "/denied":
				return flow.PathNotAllowed
			}
			return flow.None
		},
		Record: func(u secret.Use, why flow.Reason) error {
			l.uses <- u.Secret + " " + u.Place.String() + " " + why.Token()
			return nil
		},
	}
	if change != nil {
		change(&l.rules)
	}
	go func() {
		var why flow.Reason
		why, l.err = Carry(Ends{
			Agent: agentEnd, Destination: upEnd, StopAgent: stop(agentEnd), StopDestination: stop(upEnd),
			Cut: func() { _, _ = agentEnd.Close(), upEnd.Close() },
		}, l.rules)
		_, _ = agentEnd.Close(), upEnd.Close()
		l.end <- why
	}()
	l.agent, l.up = newPeer(t, a, 0), newPeer(t, u, len(frame.Preface))
	l.agent.write(frame.AppendSettings([]byte(frame.Preface), ofAgent))
	if l.rules.Failed == flow.None {
		_ = l.up.next(frame.Settings)
		l.up.write(frame.Append(frame.AppendSettings(nil, ofUp), frame.Settings, frame.Ack, 0, nil))
	}
	_ = l.agent.next(frame.Settings)
	l.agent.put(frame.Settings, frame.Ack, 0, nil)
	return l
}

// over ends it from the agent's side and returns why it has ended.
func (l *lab) over() flow.Reason {
	_ = l.agent.c.Close()
	why := <-l.end
	_ = l.up.c.Close()
	for range l.up.frames { // until all that it was sent is known
	}
	if l.room.taken != 0 {
		l.agent.t.Errorf("%d bytes of room are lost", l.room.taken)
	}
	return why
}

func get(path string, more ...string) []string {
	return append([]string{":method: GET", ":scheme: https", ":authority: api.test", ":path: " + path}, more...)
}

func post(more ...string) []string {
	return append([]string{":method: POST", ":scheme: https", ":authority: api.test", ":path: /"}, more...)
}

func uint32s(n ...uint32) (b []byte) {
	for _, n := range n {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}
