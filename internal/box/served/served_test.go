package served

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/dest/inward"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/tunnel"
)

type ledger struct {
	mu  sync.Mutex
	all []boundary.Record
}

func (l *ledger) Record(_ context.Context, r boundary.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r)
	return nil
}

func (l *ledger) list() []boundary.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]boundary.Record(nil), l.all...)
}

// lab is a listener before an agent that connect reaches.
type lab struct {
	*Listener
	at     string
	ledger *ledger
	dials  chan struct{}
}

func begin(t *testing.T, callers []uint32, connect inward.Connect) *lab {
	t.Helper()
	l := &lab{at: filepath.Join(t.TempDir(), "s"), ledger: &ledger{}, dials: make(chan struct{}, boundary.OpenIngress+8)}
	g := &boundary.Gate{Identity: boundary.Identity{Cell: "c", Generation: 4}, Recorder: l.ledger, Refusals: boundary.NewRefusals(l.ledger, time.Now), Flows: 1, Now: time.Now}
	g.Inward = inward.New(func(ctx context.Context, port uint16) (net.Conn, error) {
		l.dials <- struct{}{}
		return connect(ctx, port)
	})
	if err := g.Install(policy.Policy{Ingress: []policy.Ingress{{Port: 8080, ID: policy.Serves}}}); err != nil {
		t.Fatal(err)
	}
	l.Listener = &Listener{Gate: g, Port: 8080, Callers: callers}
	from, err := net.Listen("unix", l.at)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- l.Serve(ctx, from) }()
	t.Cleanup(func() {
		from.Close()
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *lab) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", l.at)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { c.Close() })
	return c
}

func own() []uint32 { return []uint32{uint32(os.Getuid())} }

// agent answers every request with an empty card.
func agent(context.Context, uint16) (net.Conn, error) {
	a, b, err := pair()
	if err != nil {
		return nil, err
	}
	go func() {
		defer b.Close()
		r := bufio.NewReader(b)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if line == "\r\n" {
				_, _ = io.WriteString(b, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
			}
		}
	}()
	return a, nil
}

// BI-6: who may not call has an answer, and the agent's side hears nothing.
func TestBI6StrangerReachesNothing(t *testing.T) {
	l := begin(t, []uint32{uint32(os.Getuid()) + 1}, agent)
	c := l.dial(t)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	all, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(all), "HTTP/1.1 403") || !strings.Contains(string(all), "reason=identity-unknown") {
		t.Errorf("%q", all)
	}
	for len(l.ledger.list()) == 0 {
		<-time.After(time.Millisecond)
	}
	if r := l.ledger.list()[0]; r.Verdict.Reason != flow.IdentityUnknown || r.Request.Direction != flow.In || len(l.dials) != 0 {
		t.Errorf("%+v, %d dials", r, len(l.dials))
	}
}

// B150: one caller too many is told so, and the others go on.
func TestCallersAreBounded(t *testing.T) {
	l := begin(t, own(), agent)
	var first net.Conn
	for range boundary.OpenIngress {
		c := l.dial(t)
		if first == nil {
			first = c
		}
		<-l.dials
	}
	all, _ := io.ReadAll(l.dial(t))
	if !strings.HasPrefix(string(all), "HTTP/1.1 503") || len(l.dials) != 0 {
		t.Errorf("%q, %d dials", all, len(l.dials))
	}
	_, _ = io.WriteString(first, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if line, err := bufio.NewReader(first).ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// clock is turned by hand.
type clock struct {
	mu    sync.Mutex
	next  func()
	waits time.Duration
}

func (c *clock) AfterFunc(d time.Duration, f func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next, c.waits = f, d
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.next = nil
	}
}

func (c *clock) turn() bool {
	c.mu.Lock()
	next := c.next
	c.next = nil
	c.mu.Unlock()
	if next != nil {
		next()
	}
	return next != nil
}

// BI-8: advertised after a probe of the agent's card has answered, every 30 s again, and
// withdrawn at the first that has not (B177).
func TestBI8AdvertisedWhileTheCardIsThere(t *testing.T) {
	var mu sync.Mutex
	dead := true
	l := begin(t, own(), func(ctx context.Context, port uint16) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if dead {
			return nil, errors.New("nobody listens")
		}
		return agent(ctx, port)
	})
	c := &clock{}
	p := &Prober{Ask: l.Card("agent.example"), Clock: c}
	p.Probe(t.Context())
	for i, want := range []bool{false, true, true, false, true} {
		if i > 0 {
			mu.Lock()
			dead = !want
			mu.Unlock()
			if c.waits != ProbeEvery || !c.turn() {
				t.Fatalf("after probe %d the next comes after %s", i, c.waits)
			}
		}
		if p.Advertised() != want {
			t.Errorf("probe %d: advertised %v", i, !want)
		}
	}
	p.Withdraw()
	if p.Advertised() || c.turn() {
		t.Error("it is advertised after its end")
	}
	p.Probe(t.Context())
	if p.Advertised() || c.turn() {
		t.Error("a probe that was under way advertises after the end")
	}
	(*Prober)(nil).Withdraw()
	for _, r := range l.ledger.list() {
		if r.Request.Peer != "probe" || r.Request.Direction != flow.In {
			t.Errorf("%+v", r)
		}
	}
}

// A card that does not come in time, or is none, is not there.
func TestCardThatDoesNotAnswer(t *testing.T) {
	for what, answer := range map[string]string{"silent": "", "an error": "HTTP/1.1 404 Not Found\r\n\r\n", "no HTTP": "SSH-2.0-x\r\n", "endless": strings.Repeat("x", 2*maxStatus)} {
		l := begin(t, own(), func(context.Context, uint16) (net.Conn, error) {
			a, b, err := pair()
			if err == nil {
				_, _ = io.WriteString(b, answer)
				t.Cleanup(func() { b.Close() })
			}
			return a, err
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if l.Card("a")(ctx) {
			t.Errorf("%s is a card", what)
		}
		cancel()
	}
}

// B174, B175: the handshake names the pinned port in the form that is spoken, after that of
// a monitor, and not a byte behind an answer is lost; what is no success connects nothing.
func TestReverse(t *testing.T) {
	for _, c := range []struct {
		form    tunnel.Form
		monitor uint32
		answers []string // to each line that ends a question
		asked   string
		ok      bool
	}{
		{tunnel.Both, 0, []string{"HTTP/1.1 200 OK\r\n\r\nearly"}, "CONNECT 127.0.0.1:8080 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n", true},
		{tunnel.OnlyHTTP, 0, []string{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: y\r\n\r\nearly"}, "CONNECT 127.0.0.1:8080 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n", true},
		{tunnel.OnlyText, 0, []string{"OK\nearly"}, "CONNECT 8080\n", true},
		{tunnel.OnlyText, 0, []string{"OK 5\nearly"}, "CONNECT 8080\n", true},
		{tunnel.OnlyText, 5000, []string{"OK 1073741824\n", "OK\nearly"}, "CONNECT 5000\nCONNECT 8080\n", true},
		{tunnel.OnlyText, 5000, []string{"ERR no\n"}, "CONNECT 5000\n", false},
		{tunnel.OnlyText, 0, []string{"ERR agent does not listen\n"}, "CONNECT 8080\n", false},
		{tunnel.OnlyText, 0, []string{"what\n"}, "CONNECT 8080\n", false},
		{tunnel.OnlyText, 0, []string{strings.Repeat("O", 300)}, "CONNECT 8080\n", false},
		{tunnel.OnlyHTTP, 0, []string{"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"}, "CONNECT 127.0.0.1:8080 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n", false},
		{tunnel.OnlyHTTP, 0, []string{""}, "CONNECT 127.0.0.1:8080 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n", false},
	} {
		ours, theirs, err := sys.StreamPair()
		if err != nil {
			t.Fatal(err)
		}
		guest, err := net.FileConn(theirs)
		theirs.Close()
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan string, 1)
		go func() {
			defer guest.Close()
			r := bufio.NewReader(guest)
			var all strings.Builder
			for _, answer := range c.answers {
				for {
					line, err := r.ReadString('\n')
					all.WriteString(line)
					if err != nil || line == "\r\n" || !strings.Contains(line, "\r") {
						break
					}
				}
				_, _ = io.WriteString(guest, answer)
			}
			asked <- all.String()
		}()
		r := &Reverse{Form: c.form, Monitor: c.monitor, Dial: func(context.Context) (*os.File, error) { return ours, nil }}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		conn, err := r.Connect(ctx, 8080)
		cancel()
		if got := <-asked; got != c.asked || (err == nil) != c.ok {
			t.Errorf("%q to %q: %v", c.answers, got, err)
		}
		if err != nil {
			continue
		}
		if rest, err := io.ReadAll(conn); err != nil || string(rest) != "early" {
			t.Errorf("%q: behind the answer comes %q, %v", c.answers, rest, err)
		}
		conn.Close()
	}
	r := &Reverse{Dial: func(context.Context) (*os.File, error) { return nil, errors.New("no") }}
	if _, err := r.Connect(t.Context(), 8080); err == nil {
		t.Error("connected to nothing")
	}
}

// A guest that says nothing is given up in time.
func TestReverseIsBounded(t *testing.T) {
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r := &Reverse{Dial: func(context.Context) (*os.File, error) { return ours, nil }}
	if _, err := r.Connect(ctx, 8080); err == nil {
		t.Error("connected to a guest that says nothing")
	}
}
