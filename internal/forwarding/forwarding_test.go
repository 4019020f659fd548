package forwarding

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/sys"
)

func pair(t testing.TB) (a, b *os.File) {
	t.Helper()
	a, b, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestBothEnds(t *testing.T) {
	a, b := pair(t)
	want := Opening{Port: 8080, Peer: "uid:1000"}
	if err := want.Send(a); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadOpening(b); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Deliver(a, 7, f); err != nil {
		t.Fatal(err)
	}
	id, got, err := Next(b)
	if err != nil || id != 7 || got == nil {
		t.Fatalf("%d, %v, %v", id, got, err)
	}
	got.Close()
	for _, e := range []Event{{What: Opened, ID: 7}, {What: Refused, ID: 7, Reason: flow.IngressUnreachable}, {What: Ended, ID: 7}, {What: Moved}} {
		if err := e.Send(b); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadEvent(a); err != nil || got != e {
			t.Errorf("%+v, %v; want %+v", got, err, e)
		}
	}
	b.Close()
	if e, err := ReadEvent(a); err != nil || e != (Event{}) {
		t.Errorf("the end: %+v, %v", e, err)
	}
}

// What is no message is refused, whoever sends it.
func TestNonsense(t *testing.T) {
	for _, o := range []Opening{{}, {Port: 1, Peer: strings.Repeat("x", maxPeer+1)}} {
		a, _ := pair(t)
		if o.Send(a) == nil {
			t.Errorf("%+v was sent", o)
		}
	}
	for _, m := range [][]byte{{0}, {0, 0}, {0, 0, 'x'}, bytes.Repeat([]byte{1}, 100)} {
		a, b := pair(t)
		if err := sys.SendFDs(a, m); err != nil {
			t.Fatal(err)
		}
		if o, err := ReadOpening(b); err == nil {
			t.Errorf("%x opens %+v", m, o)
		}
	}
	a, b := pair(t)
	begin := time.Now()
	if _, err := ReadOpening(b); err == nil || time.Since(begin) > 5*first {
		t.Errorf("an opening that does not come: %v", err)
	}
	for _, m := range [][]byte{{1}, {1, 2, 3, 4}, {1, 2, 3, 4, 5}} {
		if err := sys.SendFDs(a, m); err != nil {
			t.Fatal(err)
		}
		_ = b.SetReadDeadline(time.Time{})
		if _, f, err := Next(b); err == nil {
			t.Errorf("%x without a descriptor was taken: %v", m, f)
		}
	}
}

func FuzzReadEvent(f *testing.F) {
	for _, m := range []string{"o\x00\x00\x00\x01", "r\x00\x00\x00\x01busy", "m\x00\x00\x00\x00", "x\x00\x00\x00\x00", "r\x00\x00\x00\x00no-reason", "e\x00\x00\x00\x00more"} {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		if len(m) == 0 || len(m) > 200 {
			return
		}
		a, b := pair(t)
		if err := sys.SendFDs(a, m); err != nil {
			t.Fatal(err)
		}
		e, err := ReadEvent(b)
		if err != nil {
			return
		}
		if (e.Reason != flow.None) != (e.What == Refused) {
			t.Fatalf("%x is %+v", m, e)
		}
		if err := e.Send(a); err != nil {
			t.Fatal(err)
		}
		if again, err := ReadEvent(b); err != nil || again != e {
			t.Fatalf("%x is %+v, then %+v", m, e, again)
		}
	})
}
