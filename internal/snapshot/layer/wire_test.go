package layer

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/walk"
	"skep.dev/skep/internal/sys"
)

func full() snapshot.Entry {
	return snapshot.Entry{
		Grant: 3, Path: "a/\xff\n", Group: 9, Refused: "outside", BaseChanged: time.Unix(-3, 8),
		Base: snapshot.State{Type: snapshot.Symlink, UID: 1, GID: 2, Size: 1, Target: "x",
			Digest: sha256.Sum256([]byte("x")), ModTime: time.Unix(-5, 7)},
		Layer: snapshot.State{Type: snapshot.File, Mode: 0o4755, Size: 5, Digest: sha256.Sum256([]byte("12345")),
			ModTime: time.Unix(1, 2), Xattrs: []snapshot.Xattr{{Name: "user.a", Value: []byte{0}}, {Name: "user.b", Value: []byte{}}}},
	}
}

func TestEntryRoundTrip(t *testing.T) {
	want := full()
	k, r, err := open(encodeEntry(&want))
	if err != nil || k != kindEntry {
		t.Fatal(k, err)
	}
	got, err := decodeEntry(r)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
}

// The largest entry that the walker can make fits into one packet.
func TestLargestEntryFits(t *testing.T) {
	e := full()
	e.Path = strings.Repeat("p", snapshot.MaxPath)
	for _, s := range []*snapshot.State{&e.Base, &e.Layer} {
		s.Xattrs = nil
		per := snapshot.MaxXattrTotal / snapshot.MaxXattrs
		for i := range snapshot.MaxXattrs {
			name := "user." + string(rune('a'+i/26)) + string(rune('a'+i%26))
			s.Xattrs = append(s.Xattrs, snapshot.Xattr{Name: name, Value: make([]byte, per-len(name))})
		}
	}
	e.Base.Target = strings.Repeat("t", 4095)
	packet := encodeEntry(&e)
	if len(packet) > MaxMessage {
		t.Fatalf("%d bytes", len(packet))
	}
	_, r, _ := open(packet)
	if _, err := decodeEntry(r); err != nil {
		t.Error(err)
	}
}

// Whatever comes decodes to an entry that Diff may have, and to the same
// bytes again, or is refused.
func FuzzDecodeEntry(f *testing.F) {
	e := full()
	f.Add(encodeEntry(&e))
	f.Add([]byte{Version, byte(kindEntry), 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, packet []byte) {
		k, r, err := open(packet)
		if err != nil || k != kindEntry {
			return
		}
		e, err := decodeEntry(r)
		if err != nil {
			return
		}
		if err := snapshot.CheckPath(e.Path); err != nil || e.Op() == snapshot.OpNone {
			t.Errorf("took %q: %v", e.Path, err)
		}
		again := encodeEntry(&e)
		packet[2] &= 0x7f // the top bit of the grant is dropped
		if string(again) != string(packet) {
			t.Errorf("encodes differently:\n%x\n%x", packet, again)
		}
	})
}

// A lying layer process gets no further than its first lie.
func TestClientRefusesLies(t *testing.T) {
	entry := full()
	far := full()
	far.Grant = 7
	done := message(kindDone)
	done.u64(5)
	for name, packets := range map[string][][]byte{
		"version":       {{9, byte(kindDone), 0, 0, 0, 0, 0, 0, 0, 0}},
		"short":         {{Version}},
		"kind":          {{Version, 99}},
		"trailing":      {append(encodeEntry(&entry), 0)},
		"cut":           {encodeEntry(&entry)[:40]},
		"grant":         {encodeEntry(&far)},
		"count":         {encodeEntry(&entry), done.b},
		"request":       {message(kindWalk).b},
		"file in walk":  {message(kindFile).b},
		"long progress": {{Version, byte(kindProgress), 1}},
		"nothing":       {},
	} {
		ours, theirs, err := sys.SeqpacketPair()
		if err != nil {
			t.Fatal(err)
		}
		for _, packet := range packets {
			if err := sys.SendFDs(theirs, packet); err != nil {
				t.Fatal(err)
			}
		}
		go func() { // takes the request, then hangs up
			_, _, _ = sys.RecvFDs(theirs, make([]byte, 64), 0)
			theirs.Close()
		}()
		c := NewClient(ours, 4)
		if err := c.Walk(context.Background(), func(snapshot.Entry) error { return nil }); err == nil {
			t.Errorf("%s: believed", name)
		}
		c.Close()
	}
}

// A descriptor that is no regular file is refused: reading a pipe would hang.
func TestClientRefusesAPipe(t *testing.T) {
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.CloseAll([]*os.File{r, w, theirs})
	if err := sys.SendFDs(theirs, message(kindFile).b, r); err != nil {
		t.Fatal(err)
	}
	c := NewClient(ours, 1)
	defer c.Close()
	if f, err := c.Open(context.Background(), snapshot.LayerSide, 0, "a"); err == nil {
		t.Errorf("took %v", f)
	}
}

func TestZeroPowersDeny(t *testing.T) {
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	ended := make(chan error, 1)
	go func() {
		grants := []Grant{{Grant: walk.Grant{Base: dir, Upper: dir}, Dir: dir}}
		ended <- Serve(context.Background(), theirs, grants, Powers{})
	}()
	c := NewClient(ours, 1)
	ctx := context.Background()
	_, opened := c.Open(ctx, snapshot.BaseSide, 0, "a")
	_, measured := c.Measure(ctx)
	for what, err := range map[string]error{
		"measure": measured, "walk": c.Walk(ctx, func(snapshot.Entry) error { return nil }), "open": opened, "remove": c.Remove(ctx),
	} {
		var f *Failure
		if !errors.As(err, &f) || f.Code != Forbidden {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.Close()
	if err := <-ended; err != nil {
		t.Errorf("server ended with %v", err)
	}
	theirs.Close()
}

func TestCancelEndsARequest(t *testing.T) {
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _, _ = sys.RecvFDs(theirs, make([]byte, 64), 0)
		cancel()
	}()
	if err := NewClient(ours, 1).Walk(ctx, func(snapshot.Entry) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
