package box

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/dest/internet"
	"skep.dev/skep/internal/dest/inward"
	"skep.dev/skep/internal/dest/model"
	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/sys"
)

// book is skepd's ledger for a box that is served by the real link.
type book struct {
	mu    sync.Mutex
	kinds map[string][]skepv1.FlowRecord_Kind // by flow
	lent  int64

	denied uint64
	uses   []*skepv1.UseSecretRequest
}

func (b *book) RecordFlows(_ context.Context, _ string, records []*skepv1.FlowRecord) ([]*skepv1.RefusedFlow, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range records {
		if r.Kind == skepv1.FlowRecord_KIND_DENIED {
			b.denied += max(r.Count, 1)
			continue
		}
		b.kinds[r.Flow] = append(b.kinds[r.Flow], r.Kind)
	}
	return nil, nil
}

func (b *book) Lease(string, int64) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lent += 1 << 20
	return 1 << 20, nil
}

// linked is a box behind a real link.
type linked struct {
	*cellNet
	link   *boxlink.Link
	book   *book
	result chan error
}

func startLinked(t *testing.T, a *skepv1.Assignment) *linked {
	t.Helper()
	world(t)
	l := &linked{cellNet: newCellNet(t), book: &book{kinds: map[string][]skepv1.FlowRecord_Kind{}}}
	a.Cell = "cell"
	l.link, l.result = l.behind(l.box, a)
	if err := l.link.Ready(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	return l
}

// behind starts a box that is given its sockets over warden.
func (l *linked) behind(warden *os.File, a *skepv1.Assignment) (*boxlink.Link, chan error) {
	l.t.Helper()
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		l.t.Fatal(err)
	}
	line, lineEnd, err := sys.SeqpacketPair()
	if err != nil {
		l.t.Fatal(err)
	}
	link, err := boxlink.Serve(ours, line)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(link.Close)
	result := make(chan error, 1)
	go func() {
		result <- Run(context.Background(), Config{
			Daemon: theirs, Warden: warden, Lifeline: lineEnd, Internet: &internet.Dest{},
			Gateway: func(use func() (*h2.Conn, func())) boundary.Dest { return model.Dest{Gateway: use} },
			Inward:  func(reach Reach) boundary.Dest { return inward.New(reach) },
		})
	}()
	link.Assign(a, l.book)
	return link, result
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// end ends the cell, and tells how many flows have other than an intent and an outcome.
func (l *linked) end() (flows int) {
	l.t.Helper()
	if err := l.link.End(within(l.t, 10*time.Second)); err != nil {
		l.t.Fatal(err)
	}
	if err := <-l.result; err != nil {
		l.t.Errorf("the box ended with %v", err)
	}
	for id, kinds := range l.book.kinds {
		if fmt.Sprint(kinds) != "[KIND_INTENT KIND_OUTCOME]" {
			l.t.Errorf("flow %s has the records %v", id, kinds)
		}
	}
	return len(l.book.kinds)
}

// A box changes its connection to skepd while flows come, go and stay: none of them
// notices, each is recorded once, and what was pushed meanwhile arrives.
func TestMovesUnderFlows(t *testing.T) {
	port := echoAt(t, public4+":0")
	l := startLinked(t, &skepv1.Assignment{
		Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{nameRule("ok.test", public4, port)}}, Limits: &skepv1.BoxLimits{Leased: true},
		Resolver: &skepv1.ResolverUpdate{Resolvers: []string{"127.0.0.1:9"}},
	})
	dst := netip.AddrPortFrom(l.resolve("ok.test", false), port).String()
	kept, err := l.dial(dst)
	if err != nil {
		t.Fatal(err)
	}
	says(t, kept, "so that something is leased")
	stop := make(chan struct{})
	var agents sync.WaitGroup
	var flows [2]int
	for i := range flows {
		agents.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := l.dial(dst)
				if err != nil {
					t.Errorf("flow %d: %v", flows[i], err)
					return
				}
				flows[i]++
				says(t, c, "hello")
				_ = c.Close()
			}
		})
	}
	for i := range 25 {
		conn, err := l.link.Move(within(t, 10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		says(t, kept, fmt.Sprint("while nobody serves the box ", i))
		l.link.Push(&skepv1.ResolverUpdate{Resolvers: []string{"127.0.0.1:9"}})
		if i%2 == 0 {
			err = l.link.Resume(conn)
		} else { // as another skepd does
			line, _ := sys.Duplicate(l.link.Lifeline())
			_ = l.link.Lifeline().SetReadDeadline(time.Now())
			<-l.link.Done() // that one reads nothing any more
			l.link, err = boxlink.Resume(boxlink.Moved{Conn: conn, Lifeline: line, Cell: "cell", Recorder: l.book})
		}
		if err != nil {
			t.Fatal(err)
		}
		says(t, kept, "when somebody does")
	}
	close(stop)
	agents.Wait()
	_ = kept.Close()
	if n := l.end(); n != flows[0]+flows[1]+1 || n < 25 {
		t.Errorf("%d flows are recorded of %v", n, flows)
	}
}

// A cell that ends while nobody serves its box ends whole once somebody does.
func TestEndWhileMoved(t *testing.T) {
	port := echoAt(t, public4+":0")
	l := startLinked(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{nameRule("ok.test", public4, port)}}})
	c, err := l.dial(netip.AddrPortFrom(l.resolve("ok.test", false), port).String())
	if err != nil {
		t.Fatal(err)
	}
	says(t, c, "hello")
	conn, err := l.link.Move(within(t, 10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan int)
	go func() { ended <- l.end() }()
	select {
	case <-ended:
		t.Fatal("it ended while nobody served it")
	case <-l.link.Done():
		t.Fatal("the link ended")
	case <-time.After(50 * time.Millisecond):
	}
	if err := l.link.Resume(conn); err != nil {
		t.Fatal(err)
	}
	if n := <-ended; n != 1 {
		t.Errorf("%d flows", n)
	}
	_, _ = io.ReadAll(c)
}

// An agent's connection outlives its gateway: the answer that is under way comes from
// the old one, and the next request of the same connection goes to the new one.
func TestGatewayIsExchanged(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	answers := func(who string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "from ")
			_ = http.NewResponseController(w).Flush()
			if r.URL.RawQuery == "wait" {
				close(begun)
				<-goOn
			}
			fmt.Fprint(w, who)
		})
	}
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Model: true}}, answers("the first"))
	dial := func() net.Conn {
		c, err := l.dial(netip.AddrPortFrom(l.resolve(name.Model, false), 80).String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask := func(c net.Conn, in *bufio.Reader, query string) string {
		fmt.Fprintf(c, "GET /v1/models%s HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n", query)
		a, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(a.Body)
		if err != nil {
			t.Error(err)
		}
		return string(body)
	}
	kept, slow := dial(), dial()
	in := bufio.NewReader(kept)
	if got := ask(kept, in, ""); got != "from the first" {
		t.Fatal(got)
	}
	late := make(chan string)
	go func() { late <- ask(slow, bufio.NewReader(slow), "?wait") }()
	<-begun
	next := serveH2(t, answers("the second"))
	if err := l.line.Ask(within(t, 10*time.Second), lifeline.Model, next); err != nil {
		t.Fatal(err)
	}
	_ = next.Close()
	if got := ask(kept, in, ""); got != "from the second" {
		t.Error(got)
	}
	close(goOn)
	if got := <-late; got != "from the first" {
		t.Error(got)
	}
	_, _ = kept.Close(), slow.Close()
	l.finish()
}

func TestNoModelNoGateway(t *testing.T) {
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{}}, nil)
	next := serveH2(t, http.NotFoundHandler())
	if err := l.line.Ask(within(t, 10*time.Second), lifeline.Model, next); err == nil {
		t.Error("a cell without a right to a model got a gateway")
	}
	_ = next.Close()
	l.finish()
}

func (b *book) Draft(string, *skepv1.DraftRequest) (string, error) { return "", nil }

func (b *book) Asked(string, string) string { return "" }

func (b *book) UseSecret(_ string, q *skepv1.UseSecretRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses = append(b.uses, q)
	return nil
}
