package streams

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2/frame"
	"skep.dev/skep/internal/secret"
)

// An answer passes as it comes: heads before it, data and a trailer, padding or not, and
// each end of a message at once (B128).
func TestAnswersPass(t *testing.T) {
	l := begin(t, nil, nil, nil, "bearer")
	l.agent.head(0, 1, post("content-type: application/grpc", "te: trailers")...)
	l.agent.put(frame.Data, 0, 1, []byte("question"))
	_ = l.up.next(frame.Headers)
	if f := l.up.next(frame.Data); string(f.Payload) != "question" {
		t.Errorf("%q", f.Payload)
	}
	l.up.head(0, 1, ":status: 103", "link:   x ", "connection: close")
	l.up.head(0, 1, ":status: 200", "content-type: application/grpc")
	for _, want := range []string{":status: 103\nlink: x\n", ":status: 200\ncontent-type: application/grpc\n"} {
		if got := l.agent.fields(l.agent.next(frame.Headers)); got != want {
			t.Errorf("%q", got)
		}
	}
	for _, text := range []string{"one", "ends like " + value[:4], value[:4], strings.Repeat("x", frame.MaxSize)} {
		l.up.put(frame.Data, 0, 1, []byte(text))
		if f := l.agent.next(frame.Data); string(f.Payload) != text {
			t.Errorf("%q waits: %q", text, f.Payload)
		}
	}
	l.up.put(frame.Data, frame.Padded, 1, append([]byte("\x05padded"), make([]byte, 5)...))
	if f := l.agent.next(frame.Data); string(f.Payload) != "padded" {
		t.Errorf("%q", f.Payload)
	}
	if one, two := <-l.up.updates, <-l.up.updates; number(one)+number(two) != 12 || one.Stream == two.Stream {
		t.Errorf("the padding of 6 comes back as %v and %v", one, two)
	}
	l.up.put(frame.Data, 0, 1, []byte(value[:9]))
	l.up.head(frame.EndStream, 1, "grpc-status: 0")
	if f := l.agent.next(frame.Data); string(f.Payload) != value[:9] {
		t.Errorf("%q", f.Payload)
	}
	if got := l.agent.fields(l.agent.next(frame.Headers)); got != "grpc-status: 0\n" {
		t.Errorf("%q", got)
	}
	l.agent.head(frame.EndStream, 1, "x-sum: 1")
	if got := l.up.fields(l.up.next(frame.Headers)); got != "x-sum: 1\n" {
		t.Errorf("%q", got)
	}
	if why := l.over(); why != flow.None || l.err != nil {
		t.Errorf("%q %v", why.Token(), l.err)
	}
}

func number(f frame.Frame) uint32 {
	n, _ := f.Number()
	return n
}

// An answer with the value ends the connection, and the value has not passed (BS-11).
func TestReflected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := begin(t, nil, nil, nil, "bearer")
		l.agent.head(frame.EndStream, 1, get("/")...)
		l.agent.head(frame.EndStream, 3, get("/")...)
		_, _ = l.up.next(frame.Headers), l.up.next(frame.Headers)
		l.up.head(0, 3, ":status: 200")
		switch rapid.IntRange(0, 2).Draw(t, "place") {
		case 0:
			l.up.head(0, 1, ":status: 200", "x-echo: "+value)
		case 1:
			l.up.head(0, 1, ":status: 200")
			l.up.put(frame.Data, 0, 1, []byte("text"))
			l.up.head(frame.EndStream, 1, "x-echo: a "+value)
		default:
			l.up.head(0, 1, ":status: 200")
			for text := "a " + value + " b"; len(text) > 0; {
				n := rapid.IntRange(0, min(len(text), 6)).Draw(t, "piece")
				if rapid.Bool().Draw(t, "padded") {
					l.up.put(frame.Data, frame.Padded, 1, append([]byte("\x01"+text[:n]), 0))
				} else {
					l.up.put(frame.Data, 0, 1, []byte(text[:n]))
				}
				l.up.put(frame.Data, 0, 3, []byte("vv"))
				text = text[n:]
			}
		}
		if why := <-l.end; why != flow.SecretReflected || !errors.Is(l.err, secret.ErrReflected) {
			t.Errorf("%q, %v", why.Token(), l.err)
		}
		var passed []byte
		for f := range l.agent.frames {
			if f.Kind == frame.Headers {
				passed = append(passed, l.agent.fields(f)...)
			} else if f.Stream == 1 {
				passed = append(passed, f.Payload...)
			}
		}
		if bytes.Contains(passed, []byte(value[:len(value)/2])) {
			t.Errorf("%q has passed", passed)
		}
		_, _ = l.agent.c.Close(), l.up.c.Close()
	})
}

// What a destination may not send ends the connection.
func TestAnswersThatAreNone(t *testing.T) {
	for name, send := range map[string]func(*peer){
		"pushed":              func(p *peer) { p.put(frame.Push, frame.EndHeaders, 1, uint32s(2)) },
		"unasked":             func(p *peer) { p.head(0, 3, ":status: 200") },
		"of the wrong side":   func(p *peer) { p.head(0, 2, ":status: 200") },
		"data first":          func(p *peer) { p.put(frame.Data, 0, 1, []byte("x")) },
		"idle data":           func(p *peer) { p.put(frame.Data, 0, 9, []byte("x")) },
		"no status":           func(p *peer) { p.head(0, 1, "x: y") },
		"status 101":          func(p *peer) { p.head(0, 1, ":status: 101") },
		"an interim end":      func(p *peer) { p.head(frame.EndStream, 1, ":status: 100") },
		"two answers":         func(p *peer) { p.head(0, 1, ":status: 200"); p.head(0, 1, ":status: 200") },
		"an upper case name":  func(p *peer) { p.head(0, 1, ":status: 200", "Name: x") },
		"a trailer of length": func(p *peer) { p.head(0, 1, ":status: 200"); p.head(frame.EndStream, 1, "content-length: 3") },
		"too much padding":    func(p *peer) { p.head(0, 1, ":status: 200"); p.put(frame.Data, frame.Padded, 1, []byte{9, 0}) },
		"a large frame":       func(p *peer) { p.write([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1}) },
		"a window of 0":       func(p *peer) { p.number(frame.WindowUpdate, 0, 0) },
		"a window too large":  func(p *peer) { p.number(frame.WindowUpdate, 0, frame.MaxWindow) },
		"settings that break": func(p *peer) { p.put(frame.Settings, 0, 0, []byte{1}) },
		"half a block":        func(p *peer) { p.put(frame.Headers, 0, 1, []byte{0x88}); p.put(frame.Data, 0, 1, nil) },
		"an unread block":     func(p *peer) { p.put(frame.Headers, frame.EndHeaders, 1, []byte{0xff, 0xff, 0xff}) },
	} {
		l := begin(t, nil, nil, nil, "bearer")
		l.agent.head(0, 1, post()...)
		_ = l.up.next(frame.Headers)
		go send(l.up)
		if f := l.agent.next(frame.GoAway); binary.BigEndian.Uint32(f.Payload[4:]) == frame.CodeNone {
			t.Errorf("%s: %v", name, f)
		}
		if <-l.end; l.err != nil {
			t.Errorf("%s: %v", name, l.err)
		}
		_, _ = l.agent.c.Close(), l.up.c.Close()
	}
}

// After the destination's goodbye the agent knows what it may try again.
func TestGoodbye(t *testing.T) {
	l := begin(t, nil, nil, nil, "bearer")
	l.agent.head(frame.EndStream, 1, get("/")...)
	l.agent.head(frame.EndStream, 3, get("/denied")...)
	l.agent.head(frame.EndStream, 5, get("/")...) // 3 to the destination
	_, _ = l.up.next(frame.Headers), l.up.next(frame.Headers)
	l.up.put(frame.GoAway, 0, 0, append(uint32s(1, frame.CodeNone), "see "+value...))
	if f := l.agent.next(frame.GoAway); !bytes.Equal(f.Payload, uint32s(5, frame.CodeNone)) {
		t.Errorf("%q", f.Payload)
	}
	if f := l.agent.next(frame.Reset); f.Stream != 5 || number(f) != frame.CodeRefused {
		t.Errorf("%v", f)
	}
	l.agent.head(frame.EndStream, 7, get("/")...)
	if f := l.agent.next(frame.Reset); f.Stream != 7 || number(f) != frame.CodeRefused {
		t.Errorf("%v", f)
	}
	l.up.head(frame.EndStream, 1, ":status: 204")
	if got := l.agent.fields(l.agent.next(frame.Headers)); got != ":status: 204\n" {
		t.Errorf("%q", got)
	}
	l.over()
}

// Settings, pings and windows are the peers' own; what one says of its windows the other
// hears, and acknowledges (section 6.5).
func TestSettingsPass(t *testing.T) {
	l := begin(t, []frame.Setting{{ID: frame.SettingWindow, Value: 100}, {ID: frame.SettingTable, Value: 0}}, []frame.Setting{{ID: frame.SettingWindow, Value: 7}, {ID: frame.SettingStreams, Value: 3}}, nil, "bearer")
	_ = l.agent.next(frame.Settings) // the acknowledgement
	_ = l.up.next(frame.Settings)    // too
	l.agent.write(frame.AppendSettings(nil, []frame.Setting{{ID: frame.SettingWindow, Value: 200}, {ID: frame.SettingStreams, Value: 1}}))
	f := l.up.next(frame.Settings)
	if all, err := f.Settings(); err != nil || len(all) != 1 || all[0] != (frame.Setting{ID: frame.SettingWindow, Value: 200}) {
		t.Errorf("%v %v", all, err)
	}
	l.up.put(frame.Settings, frame.Ack, 0, nil)
	if f := l.agent.next(frame.Settings); !f.Has(frame.Ack) {
		t.Errorf("%v", f)
	}
	l.up.write(frame.AppendSettings(nil, []frame.Setting{{ID: frame.SettingStreams, Value: 1000}}))
	f = l.agent.next(frame.Settings)
	if all, err := f.Settings(); err != nil || len(all) != 2 || all[0] != (frame.Setting{ID: frame.SettingStreams, Value: maxStreams}) {
		t.Errorf("%v %v", all, err)
	}
	l.agent.put(frame.Ping, 0, 0, []byte("12345678"))
	if f := l.up.next(frame.Ping); string(f.Payload) != "12345678" || f.Has(frame.Ack) {
		t.Errorf("%v", f)
	}
	l.up.put(frame.Ping, frame.Ack, 0, []byte("12345678"))
	if f := l.agent.next(frame.Ping); !f.Has(frame.Ack) {
		t.Errorf("%v", f)
	}
	l.agent.head(0, 1, get("/")...)
	_ = l.up.next(frame.Headers)
	l.agent.number(frame.WindowUpdate, 1, 9)
	l.agent.number(frame.WindowUpdate, 0, ownAnswers+9)
	if a, b := <-l.up.updates, <-l.up.updates; a.Stream != 1 || number(a) != 9 || b.Stream != 0 || number(b) != 9 {
		t.Errorf("%v %v", a, b)
	}
	l.agent.put(frame.Data, 0, 1, []byte("1234567"))
	_ = l.up.next(frame.Data)
	l.up.number(frame.WindowUpdate, 1, 5)
	if f := <-l.agent.updates; f.Stream != 1 || number(f) != 5 {
		t.Errorf("%v", f)
	}
	l.agent.put(frame.Data, 0, 1, []byte("123456"))
	if f := l.agent.next(frame.GoAway); !bytes.Equal(f.Payload, uint32s(1, frame.CodeFlow)) {
		t.Errorf("%v", f)
	}
	l.over()
}

// What a destination sends for a stream that is gone comes back to its window.
func TestWindowsOfStreamsThatAreGone(t *testing.T) {
	l := begin(t, nil, nil, nil, "bearer")
	l.agent.head(0, 1, post()...)
	_ = l.up.next(frame.Headers)
	l.up.head(0, 1, ":status: 200")
	_ = l.agent.next(frame.Headers)
	l.agent.number(frame.Reset, 1, frame.CodeCancel)
	_ = l.up.next(frame.Reset)
	l.up.put(frame.Data, 0, 1, make([]byte, 1000))
	if f := <-l.up.updates; f.Stream != 0 || number(f) != 1000 {
		t.Errorf("%v", f)
	}
	l.agent.put(frame.Data, 0, 1, make([]byte, 500))
	if f := <-l.agent.updates; f.Stream != 0 || number(f) != 500 {
		t.Errorf("%v", f)
	}
	l.over()
}

// Whatever a destination sends: no value passes, and nothing hangs.
func FuzzAnswer(f *testing.F) {
	var seed bytes.Buffer
	p := &peer{t: f, c: discard{w: &seed}, heads: newHeads(1 << 20)}
	p.enc = encoder(p)
	p.head(0, 1, ":status: 200", "a: b")
	p.put(frame.Data, 0, 1, []byte("some text"))
	p.head(frame.EndStream, 1, "x: y")
	f.Add(seed.Bytes())
	f.Add(frame.Append(nil, frame.GoAway, 0, 0, uint32s(1, 0)))
	f.Fuzz(func(t *testing.T, stream []byte) {
		l := begin(t, nil, nil, nil, "bearer")
		l.agent.head(0, 1, post()...)
		_ = l.up.next(frame.Headers)
		l.up.write(stream)
		_ = l.up.c.Close()
		<-l.end
		for f := range l.agent.frames {
			if text := string(f.Payload); f.Kind == frame.Data && strings.Contains(text, value) {
				t.Errorf("%q passes", text)
			}
		}
		_ = l.agent.c.Close()
		if l.room.taken != 0 {
			t.Errorf("%d bytes of room are lost", l.room.taken)
		}
	})
}
