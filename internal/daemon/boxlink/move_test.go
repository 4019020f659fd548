package boxlink

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/sys"
)

func lives(t *testing.T, l *Link) {
	t.Helper()
	select {
	case <-l.Done():
		t.Fatal("the box is taken for gone")
	default:
	}
}

// order waits for the order to move.
func order(t *testing.T, line *os.File) *os.File {
	t.Helper()
	o, f, err := lifeline.Next(line)
	if err != nil || o != lifeline.Move {
		t.Fatalf("%c, %v", o, err)
	}
	return f
}

// What is pushed while nobody serves the box, its end included, it is told on the new
// connection, and there alone it is heard.
func TestMovedBoxIsToldWhatItMissed(t *testing.T) {
	l, old, line := ends(t)
	r := &records{}
	l.Assign(&skepv1.Assignment{Cell: "mine"}, r)
	moved := make(chan *os.File)
	go func() {
		conn, err := l.Move(soon(t))
		if err != nil {
			t.Error(err)
		}
		moved <- conn
	}()
	next := order(t, line)
	defer next.Close()
	if err := old.Close(); err != nil { // before it says so: that is not the end of the box
		t.Fatal(err)
	}
	if err := lifeline.Answer(line, nil); err != nil {
		t.Fatal(err)
	}
	conn := <-moved
	lives(t, l)
	for i := range 20 {
		l.Push(&skepv1.ResolverUpdate{Resolvers: []string{strings.Repeat("x", i)}})
	}
	if _, err := l.Move(soon(t)); err == nil {
		t.Error("a box that has moved was moved")
	}
	go func() { _ = l.End(soon(t)) }()
	box := client(t, next)
	record := make(chan error)
	go func() {
		_, err := box.Record(soon(t), connect.NewRequest(&skepv1.RecordRequest{Records: []*skepv1.FlowRecord{{Kind: skepv1.FlowRecord_KIND_DENIED}}}))
		record <- err
	}()
	if err := l.Resume(conn); err != nil {
		t.Fatal(err)
	}
	if err := <-record; err != nil || r.cell != "mine" {
		t.Errorf("recorded for %q: %v", r.cell, err)
	}
	w, err := box.Watch(soon(t), connect.NewRequest(&skepv1.WatchRequest{Protocol: Protocol}))
	if err != nil || !w.Receive() || len(w.Msg().GetResolver().GetResolvers()[0]) != 19 {
		t.Fatalf("%v, %v", w.Msg(), err)
	}
	if !w.Receive() || w.Msg().GetEnd() == nil {
		t.Fatalf("%v, %v", w.Msg(), w.Err())
	}
	lives(t, l)
}

// A box that says no stays; one that is late is served where it went.
func TestMoveThatFailsChangesNothing(t *testing.T) {
	l, old, line := ends(t)
	l.Assign(&skepv1.Assignment{Cell: "mine"}, &records{})
	box := client(t, old)
	go func() {
		_ = order(t, line).Close()
		_ = lifeline.Answer(line, errors.New("not now"))
	}()
	if _, err := l.Move(soon(t)); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Fatal(err)
	}
	if _, err := box.Record(soon(t), connect.NewRequest(&skepv1.RecordRequest{})); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Move(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if _, err := box.Record(soon(t), connect.NewRequest(&skepv1.RecordRequest{})); err != nil {
		t.Fatal(err)
	}
	next := order(t, line)
	defer next.Close()
	_ = lifeline.Answer(line, nil)
	if _, err := client(t, next).Record(soon(t), connect.NewRequest(&skepv1.RecordRequest{})); err != nil {
		t.Error(err)
	}
	lives(t, l)
}

// TestHostileBoxOnItsLifeline is the attack: nonsense, a descriptor, a word that nobody
// asked for, a death in the middle. Each is the end of the box.
func TestHostileBoxOnItsLifeline(t *testing.T) {
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, say := range map[string]func(line, conn *os.File) error{
		"unasked":      func(line, _ *os.File) error { return lifeline.Answer(line, nil) },
		"nonsense":     func(line, _ *os.File) error { return sys.SendFDs(line, []byte("give me the others")) },
		"a descriptor": func(line, _ *os.File) error { return sys.SendFDs(line, []byte("y"), null) },
		"asked, nonsense": func(line, _ *os.File) error {
			_, f, _ := lifeline.Next(line)
			return errors.Join(f.Close(), sys.SendFDs(line, []byte("z")))
		},
		"asked, dies": func(line, conn *os.File) error {
			_, f, _ := lifeline.Next(line)
			return errors.Join(f.Close(), conn.Close(), line.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, conn, line := ends(t)
			l.Assign(&skepv1.Assignment{Cell: "mine"}, &records{})
			failed := make(chan error, 1)
			if strings.HasPrefix(name, "asked") {
				go func() {
					_, err := l.Move(soon(t))
					failed <- err
				}()
			} else {
				failed <- errors.New("not asked")
			}
			if err := say(line, conn); err != nil {
				t.Fatal(err)
			}
			if err := <-failed; err == nil {
				t.Error("it has moved")
			}
			select {
			case <-l.Done():
			case <-soon(t).Done():
				t.Error("the box is still served")
			}
		})
	}
}
