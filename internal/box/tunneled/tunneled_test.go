package tunneled

import (
	"bytes"
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
	"skep.dev/skep/internal/boundary/link"
	"skep.dev/skep/internal/dest/internet"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/sys"
)

// lab is a box in this process, and its connector's end of the link.
type lab struct {
	t     *testing.T
	conn  *link.Conn
	file  *os.File
	path  string
	ended chan error
}

func begin(t *testing.T) *lab {
	t.Helper()
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, conn: link.New(ours), file: ours, path: filepath.Join(t.TempDir(), "s"), ended: make(chan error, 1)}
	from, err := sys.ListenUnix(l.path, sys.Stream)
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { _ = ours.Close() })
	go func() {
		l.ended <- Run(context.Background(), Config{Connector: theirs, Listener: from, Internet: &internet.Dest{}})
	}()
	return l
}

func (l *lab) send(o link.Order) {
	l.t.Helper()
	if err := l.conn.Send(o); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) word() (w link.Word) {
	l.t.Helper()
	if err := l.conn.Receive(&w); err != nil {
		l.t.Fatal(err)
	}
	return w
}

func (l *lab) assigned(p policy.Policy) {
	l.t.Helper()
	l.send(link.Order{Assign: &link.Assign{Cell: "c", Agent: "a", Generation: 3, Policy: p}})
	if w := l.word(); w.Installed == nil || w.Installed.Fault != "" || w.Installed.Version != p.Version {
		l.t.Fatalf("%+v", w.Installed)
	}
}

// ask sends a request of the cell and gives the answer.
func (l *lab) ask() string {
	c, err := net.Dial("unix", l.path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, "CONNECT no.test:443 HTTP/1.1\r\nHost: no.test:443\r\n\r\n")
	all, _ := io.ReadAll(c)
	return string(all)
}

// A policy is answered, an invalid one too, and then the old one stays (B160).
func TestOrders(t *testing.T) {
	l := begin(t)
	l.assigned(policy.Policy{Version: "1"})
	l.send(link.Order{Policy: &policy.Policy{Version: "2", Rules: []policy.Rule{{ID: "bad"}}}})
	if w := l.word(); w.Installed == nil || w.Installed.Version != "1" || !strings.Contains(w.Installed.Fault, `rule "bad"`) {
		t.Errorf("%+v", w.Installed)
	}
	l.send(link.Order{Names: &link.Names{}})
	answered := make(chan string, 1)
	go func() { answered <- l.ask() }()
	batch := l.word().Batch
	if batch == nil || len(batch.Records) != 1 || batch.Records[0].Policy != "1" || batch.Records[0].Reason != "not-on-allowlist" {
		t.Fatalf("%+v", batch)
	}
	l.send(link.Order{Wrote: &link.Wrote{Batch: batch.Number, OK: true}})
	if got := <-answered; !strings.Contains(got, "reason=not-on-allowlist") {
		t.Errorf("%q", got)
	}
	l.send(link.Order{Ask: true})
	if w := l.word(); w.Status == nil || w.Status.Denials != 1 || w.Status.Flows != 0 {
		t.Errorf("%+v", w.Status)
	}
	l.send(link.Order{End: true})
	if w := l.word(); !w.Done {
		t.Errorf("%+v", w)
	}
	if err := <-l.ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("unix", l.path); err == nil {
		t.Error("it listens after its end")
	}
}

// Whatever is wrong with the link is the end of the box; then nobody listens.
func TestEndOfTheLink(t *testing.T) {
	for what, spoil := range map[string]func(*lab){
		"gone":             func(l *lab) { _ = l.file.Close() },
		"nothing said":     func(l *lab) { l.send(link.Order{}) },
		"not understood":   func(l *lab) { _, _ = l.file.Write([]byte("\x00\x00\x00\x0c{\"open\":true}")) },
		"larger than ever": func(l *lab) { _, _ = l.file.Write(bytes.Repeat([]byte{0xff}, 9)) },
	} {
		l := begin(t)
		l.assigned(policy.Policy{Version: "1"})
		spoil(l)
		if err := <-l.ended; err == nil {
			t.Errorf("%s: it ended as if all were well", what)
		}
		if _, err := net.Dial("unix", l.path); err == nil {
			t.Errorf("%s: it listens", what)
		}
	}
	l := begin(t)
	l.send(link.Order{Ask: true})
	if err := <-l.ended; !errors.Is(err, errFirst) {
		t.Errorf("no cell: %v", err)
	}
	l = begin(t)
	l.send(link.Order{Assign: &link.Assign{Cell: "c", Policy: policy.Policy{Rules: []policy.Rule{{ID: "bad"}}}}})
	if w := l.word(); w.Installed == nil || w.Installed.Fault == "" || <-l.ended == nil {
		t.Errorf("a bad first policy: %+v", w.Installed)
	}
}

// An outcome is tried until it is written; what gates is told (B4, B190).
func TestRecorder(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _ = a.Close(); _ = b.Close() }()
	r, far := newRecorder(link.New(a)), link.New(b)
	over := make(chan error, 1)
	go func() { over <- r.run() }()
	batch := func() *link.Batch {
		t.Helper()
		var w link.Word
		if err := far.Receive(&w); err != nil || w.Batch == nil {
			t.Fatalf("%+v, %v", w, err)
		}
		return w.Batch
	}
	record := func(ctx context.Context, k boundary.Kind) chan error {
		done := make(chan error, 1)
		go func() { done <- r.Record(ctx, boundary.Record{Kind: k, Request: flow.Request{Count: 1}}) }()
		return done
	}
	intent := record(t.Context(), boundary.Intent)
	r.wrote(link.Wrote{Batch: batch().Number})
	if err := <-intent; !errors.Is(err, errNotWritten) {
		t.Errorf("an intent: %v", err)
	}
	outcome := record(t.Context(), boundary.Outcome)
	for _, ok := range []bool{false, false, true} {
		r.wrote(link.Wrote{Batch: batch().Number, OK: ok})
	}
	if err := <-outcome; err != nil {
		t.Errorf("an outcome: %v", err)
	}
	r.wrote(link.Wrote{Batch: 99, OK: true}) // of nothing
	late, cancel := context.WithCancel(t.Context())
	abandoned := record(late, boundary.Intent)
	number := batch().Number
	cancel()
	if err := <-abandoned; !errors.Is(err, context.Canceled) {
		t.Errorf("abandoned: %v", err)
	}
	var all sync.WaitGroup
	for range 2 { // one more is under way, the other waits behind two
		all.Go(func() {
			if err := r.Record(t.Context(), boundary.Record{Kind: boundary.Denied, Request: flow.Request{Count: 2}}); !errors.Is(err, errOver) {
				t.Errorf("at the end: %v", err)
			}
		})
	}
	batch()
	for r.denied.Load() != 4 {
		<-time.After(time.Millisecond)
	}
	r.giveUp()
	r.giveUp()
	all.Wait()
	r.wrote(link.Wrote{Batch: number, OK: true})
	if err := <-over; err != nil {
		t.Error(err)
	}
	if err := r.Record(t.Context(), boundary.Record{}); !errors.Is(err, errOver) {
		t.Errorf("after the end: %v", err)
	}
}

// What waits has a bound; outcomes are as many as flows, and always have a place.
func TestRecorderIsBounded(t *testing.T) {
	r := newRecorder(link.New(&bytes.Buffer{}))
	for range boundary.WaitingRecords {
		if err := r.add(&pending{done: make(chan error, 1)}, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.add(&pending{done: make(chan error, 1)}, false); !errors.Is(err, errTooManyRecords) {
		t.Errorf("%v", err)
	}
	if err := r.add(&pending{done: make(chan error, 1)}, true); err != nil {
		t.Errorf("an outcome: %v", err)
	}
	r.giveUp()
}
