package ws

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/secret"
)

const (
	mark  = "skep-secret-gh-0123abcd"
	other = "skep-secret-other-0123abcd"
	value = "v4lue-of-a-secret"
)

func keeper(t testing.TB, as string) *secret.Keeper {
	t.Helper()
	place, err := secret.ParsePlace(as)
	check(t, err)
	b, err := secret.NewBinding(secret.Binding{Name: "gh", Source: secret.Source{File: "/k"}, Hosts: []string{"api.test"}, As: []secret.Place{place}})
	check(t, err)
	k, err := secret.NewKeeper([]secret.Bound{{Binding: b, Placeholder: mark}})
	check(t, err)
	v, err := secret.NewValue([]byte(value))
	check(t, err)
	k.Set("gh", v, time.Time{})
	return k
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// room has a place for one message.
type room struct{ taken int }

func (r *room) Take(n int) bool {
	if r.taken > 0 {
		return false
	}
	r.taken = n
	return true
}

func (r *room) Give(n int) { r.taken -= n }

func agent(t testing.TB, as string) (*Agent, *[]secret.Use, *room) {
	uses, r := &[]secret.Use{}, &room{}
	return (&Agent{
		Keeper: keeper(t, as), At: secret.At{Host: "api.test", Port: 443, Path: "/"}, Now: time.Now, Room: r,
		Record: func(u secret.Use) error { *uses = append(*uses, u); return nil },
	}).Begin(), uses, r
}

// put makes one frame; the op has FIN where it is to be final.
func put(op byte, masked bool, payload string) []byte {
	b := []byte{op}
	bit := byte(0)
	if masked {
		bit = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, bit|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, bit|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, bit|127), uint64(n))
	}
	if !masked {
		return append(b, payload...)
	}
	mask := [4]byte{1, 2, 0x83, 0xf4}
	b = append(b, mask[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return b
}

const fin = 0x80

// take reads frames back: op and payload of each.
func take(t testing.TB, b []byte, masked bool) (all []string) {
	t.Helper()
	r := frames{masked: masked}
	for len(b) > 0 {
		rest, whole, err := r.next(b)
		if err != nil || !whole || uint64(len(rest)) < r.left {
			t.Fatalf("%q is no frame: %v", b, err)
		}
		payload := rest[:r.left]
		if masked {
			payload = r.unmask(nil, payload)
		}
		all = append(all, string(r.head[:1])+string(payload))
		b = rest[r.left:]
		r.left = 0
		r.end()
	}
	return all
}

type feeder interface{ Feed([]byte) ([]byte, error) }

// feed feeds a copy of a stream in pieces of n bytes.
func feed(f feeder, stream []byte, n int) (out []byte, err error) {
	for piece := range slices.Chunk(slices.Clone(stream), n) {
		b, err := f.Feed(piece)
		if err != nil {
			return out, err
		}
		out = append(out, b...)
	}
	return out, nil
}

// All that an agent may send passes as it is, at once, and unbuffered (N05).
func TestFramesPass(t *testing.T) {
	stream := slices.Concat(put(fin|opText, true, "hello"), put(opBinary, true, "a"), put(fin|9, true, "ping"), put(opContinuation, true, ""), put(fin|opContinuation, true, "b"),
		put(fin|opBinary, true, strings.Repeat("x", 70000)), put(fin|opPong, true, ""), put(fin|opClose, true, "\x03\xe8bye"))
	for _, n := range []int{1, 3, 4096, len(stream)} {
		a, uses, _ := agent(t, "bearer")
		out, err := feed(a, stream, n)
		if err != nil || !bytes.Equal(out, stream) || len(*uses) > 0 {
			t.Fatalf("in pieces of %d: %v", n, err)
		}
	}
	a, _, _ := agent(t, "bearer")
	if _, err := a.Feed(put(fin|opBinary, true, strings.Repeat("x", 1<<24))[:14]); err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 1000)
	if out, err := a.Feed(piece); err != nil || len(out) != len(piece) {
		t.Errorf("a frame of 16 MiB waits: %v", err)
	}
	stream = slices.Concat(put(fin|opText, false, "hello "+value[:4]), put(opText, false, value[:3]), put(fin|9, false, value[:8]), put(fin|opContinuation, false, ""), put(fin|opBinary, false, strings.Repeat("v", 70000)))
	for _, n := range []int{1, 1000, len(stream)} {
		s := NewServer(keeper(t, "bearer"), "api.test", 443)
		if out, err := feed(s, stream, n); err != nil || !bytes.Equal(out, stream) {
			t.Errorf("from the destination, in pieces of %d: %v", n, err)
		}
		s.Close()
	}
}

// Where `ws` says so a text message is filled in, its fragments as one, while a ping
// passes between them (BS-3, C09).
func TestTextIsFilledIn(t *testing.T) {
	long := strings.Repeat("y", 1000)
	stream := slices.Concat(put(fin|opText, true, "auth "+mark), put(opText, true, long+mark[:5]), put(fin|9, true, "ping"), put(opContinuation, true, mark[5:]), put(fin|opContinuation, true, ""),
		put(fin|opBinary, true, "bytes"), put(fin|opText, true, ""))
	want := []string{"\x81auth " + value, "\x89ping", "\x81" + long + value, "\x82bytes", "\x81"}
	for _, n := range []int{1, 7, len(stream)} {
		a, uses, r := agent(t, "ws")
		out, err := feed(a, stream, n)
		check(t, err)
		if got := take(t, out, true); !slices.Equal(got, want) || len(*uses) != 2 || r.taken != 0 {
			t.Errorf("in pieces of %d: %q, %v, %d", n, got, *uses, r.taken)
		}
	}
}

// What must not go on is told, and no byte that makes it whole goes on.
func TestMisuse(t *testing.T) {
	for name, c := range map[string]struct {
		as     string
		stream []byte
		want   string
	}{
		"without the place":     {"bearer", put(fin|opText, true, "auth "+mark), "secret-misplaced"},
		"in a binary message":   {"ws", put(fin|opBinary, true, "auth "+mark), "secret-misplaced"},
		"in a ping":             {"ws", put(fin|9, true, mark), "secret-misplaced"},
		"in a close":            {"ws", put(fin|opClose, true, "\x03\xe8"+mark), "secret-misplaced"},
		"encoded":               {"ws", put(fin|opText, true, strings.ReplaceAll(mark, "s", "%73")), "secret-misplaced"},
		"unknown":               {"ws", put(fin|opText, true, other), "secret-unknown"},
		"in two messages":       {"ws", slices.Concat(put(fin|opText, true, mark[:9]), put(fin|opText, true, mark[9:])), "secret-misplaced"},
		"in two pings":          {"ws", slices.Concat(put(fin|9, true, mark[:9]), put(fin|9, true, mark[9:])), "secret-misplaced"},
		"too large":             {"ws", put(fin|opText, true, strings.Repeat("x", secret.MaxText+1)), "secret-too-large"},
		"too large in pieces":   {"ws", slices.Concat(put(opText, true, strings.Repeat("x", secret.MaxText)), put(fin|opContinuation, true, "x")), "secret-too-large"},
		"a length of 2^63":      {"ws", []byte{fin | opText, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, "malformed"},
		"a length in long":      {"ws", []byte{fin | opText, 0xfe, 0, 1, 1, 2, 3, 4}, "malformed"},
		"unmasked":              {"ws", put(fin|opText, false, "x"), "malformed"},
		"compressed":            {"ws", put(fin|opText|0x40, true, "x"), "malformed"},
		"an unknown opcode":     {"ws", put(fin|3, true, "x"), "malformed"},
		"an unknown control":    {"ws", put(fin|11, true, "x"), "malformed"},
		"a ping in two":         {"ws", put(9, true, "x"), "malformed"},
		"a long ping":           {"ws", put(fin|9, true, strings.Repeat("x", 126)), "malformed"},
		"a second message":      {"ws", slices.Concat(put(opText, true, "x"), put(fin|opText, true, "y")), "malformed"},
		"nothing to go on with": {"ws", put(fin|opContinuation, true, "x"), "malformed"},
	} {
		for _, n := range []int{1, len(c.stream)} {
			a, _, _ := agent(t, c.as)
			out, err := feed(a, c.stream, n)
			if err == nil || !strings.Contains(err.Error(), c.want) || bytes.Contains(out, []byte(value)) {
				t.Errorf("%s, in pieces of %d: %v", name, n, err)
			}
			a.Close()
		}
	}
	a, _, r := agent(t, "ws")
	r.taken = 1
	if _, err := a.Feed(put(fin|opText, true, "x")); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Error("without room:", err)
	}
	a, _, _ = agent(t, "ws")
	a.Record = func(secret.Use) error { return errors.New("no room") }
	var misuse *Misuse
	if out, err := a.Feed(put(fin|opText, true, mark)); len(out) > 0 || !errors.As(err, &misuse) || misuse.Reason != flow.RecordUnavailable {
		t.Error("unrecorded:", err)
	}
}

// message cuts a text into frames of messages, at random.
func message(t *rapid.T, text string, masked bool) (stream []byte) {
	op := byte(opText)
	for len(text) > 0 {
		n := rapid.IntRange(0, len(text)).Draw(t, "frame")
		bit := byte(0)
		if rapid.Bool().Draw(t, "final") {
			bit = fin
		}
		stream = append(stream, put(bit|op, masked, text[:n])...)
		if op = opContinuation; bit == fin {
			op = opText
		}
		if rapid.IntRange(0, 4).Draw(t, "ping") == 0 {
			stream = append(stream, put(fin|9, masked, "p")...)
		}
		text = text[n:]
	}
	return stream
}

// No cut into bytes, frames and messages lets a placeholder of another host through, or
// a value back (BS-4, BS-11).
func TestNoCutLetsASecretThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pad := rapid.StringN(0, 10, -1)
		stream := message(t, pad.Draw(t, "front")+other+pad.Draw(t, "back")+"..", true)
		k := keeper2(t)
		for _, as := range []string{"ws", "bearer"} {
			a := (&Agent{Keeper: k[as], At: secret.At{Host: "api.test", Port: 443, Path: "/"}, Now: time.Now, Room: &room{}, Record: func(secret.Use) error { return nil }}).Begin()
			var err error
			for rest := slices.Clone(stream); len(rest) > 0 && err == nil; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
				_, err = a.Feed(rest[:n])
				rest = rest[n:]
			}
			if err == nil && whole(stream) {
				t.Errorf("as %s a placeholder has passed", as)
			}
		}
		s := NewServer(k["ws"], "api.test", 443)
		stream = message(t, pad.Draw(t, "front")+value+"..", false)
		var passed []byte
		var err error
		for len(stream) > 0 && err == nil {
			n := rapid.IntRange(1, len(stream)).Draw(t, "piece")
			var out []byte
			out, err = s.Feed(slices.Clone(stream[:n]))
			passed = append(passed, out...)
			stream = stream[n:]
		}
		if !errors.Is(err, secret.ErrReflected) || bytes.Contains(passed, []byte(value)) {
			t.Errorf("the value has passed: %q, %v", passed, err)
		}
	})
}

// whole tells whether the last message has ended: else it may still be held.
func whole(stream []byte) bool {
	r := frames{masked: true}
	for len(stream) > 0 {
		rest, ok, err := r.next(stream)
		if err != nil || !ok {
			return false
		}
		stream = rest[r.left:]
		r.left = 0
		r.end()
	}
	return r.message == 0
}

func keeper2(t *rapid.T) map[string]*secret.Keeper {
	out := map[string]*secret.Keeper{}
	for _, as := range []string{"ws", "bearer"} {
		place, _ := secret.ParsePlace(as)
		b, _ := secret.NewBinding(secret.Binding{Name: "gh", Source: secret.Source{File: "/k"}, Hosts: []string{"api.test"}, As: []secret.Place{place}})
		k, err := secret.NewKeeper([]secret.Bound{{Binding: b, Placeholder: mark}})
		v, _ := secret.NewValue([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		k.Set("gh", v, time.Time{})
		out[as] = k
	}
	return out
}

// payloads joins those of frames, of which the last may be cut.
func payloads(t *testing.T, b []byte, masked bool) (text string) {
	r := frames{masked: masked}
	for {
		rest, ok, err := r.next(b)
		if err != nil {
			t.Fatalf("%q goes on", b)
		}
		if !ok {
			return text
		}
		n := min(uint64(len(rest)), r.left)
		text += string(r.unmask(nil, rest[:n]))
		if r.left -= n; r.left > 0 {
			return text
		}
		r.end()
		b = rest[n:]
	}
}

// Whatever an agent sends: what goes on are frames, and no placeholder is in one.
func FuzzAgent(f *testing.F) {
	f.Add(put(fin|opText, true, "a "+mark), uint8(3))
	f.Add(slices.Concat(put(opText, true, mark[:9]), put(fin|9, true, "x"), put(fin|opContinuation, true, mark[9:])), uint8(200))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		a, uses, r := agent(t, "ws")
		out, err := feed(a, stream, int(size)+1)
		if err == nil && len(*uses) == 0 && len(out) > len(stream) {
			t.Errorf("%q became %q", stream, out)
		}
		if text := payloads(t, out, true); strings.Contains(text, mark) {
			t.Errorf("a placeholder goes on in %q", text)
		}
		if a.Close(); r.taken != 0 {
			t.Error("room is lost")
		}
	})
}

// Whatever a destination sends passes as it is, or ends.
func FuzzServer(f *testing.F) {
	f.Add(put(fin|opText, false, "a "+value), uint8(3))
	k := keeper(f, "ws")
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		s := NewServer(k, "api.test", 443)
		defer s.Close()
		out, err := feed(s, stream, int(size)+1)
		if !bytes.HasPrefix(stream, out) || strings.Contains(payloads(t, out, false), value) {
			t.Errorf("%q passes as %q, %v", stream, out, err)
		}
	})
}

func BenchmarkAgent(b *testing.B) {
	a, _, _ := agent(b, "bearer")
	frame := put(fin|opBinary, true, strings.Repeat("\x00\x01%\\", 1<<18))
	b.SetBytes(int64(len(frame)))
	for b.Loop() {
		for piece := range slices.Chunk(frame, 16<<10) {
			if _, err := a.Feed(piece); err != nil {
				b.Fatal(err)
			}
		}
	}
}
