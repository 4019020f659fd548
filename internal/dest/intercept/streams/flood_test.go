package streams

import (
	"bytes"
	"encoding/binary"
	"net"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2/frame"
)

// discard is a connection that keeps what is written.
type discard struct {
	net.Conn
	w *bytes.Buffer
}

func (d discard) Write(b []byte) (int, error) { return d.w.Write(b) }

func encoder(p *peer) *hpack.Encoder { return hpack.NewEncoder(&p.block) }

// flood is what an agent sends, and how that ends.
type flood struct {
	code uint32
	send func(*peer)
}

// bomb is one field of the table, named by every byte of a block.
func bomb(p *peer) {
	p.block.Reset()
	check(p.t, p.enc.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 4000)}))
	define := bytes.Clone(p.block.Bytes())
	for i := range uint32(50) {
		p.write(frame.AppendBlock(nil, frame.EndStream, 2*i+1, append(define, bytes.Repeat([]byte{0xbe}, maxBlock-len(define))...)))
		define = nil
	}
	p.write(frame.Append(nil, frame.Push, 0, 1, nil))
}

func floods() map[string]flood {
	return map[string]flood{
		"continuation": {frame.CodeCalm, func(p *peer) {
			p.put(frame.Headers, 0, 1, []byte{0x88})
			for range 1 << 15 {
				p.put(frame.Continuation, 0, 1, bytes.Repeat([]byte{0x88}, 100))
			}
		}},
		"empty continuation": {frame.CodeCalm, func(p *peer) {
			p.put(frame.Headers, 0, 1, nil)
			for range 1 << 15 {
				p.put(frame.Continuation, 0, 1, nil)
			}
		}},
		"rapid reset": {frame.CodeCalm, func(p *peer) {
			for i := range uint32(1 << 12) {
				p.head(frame.EndStream, 2*i+1, get("/")...)
				p.number(frame.Reset, 2*i+1, frame.CodeCancel)
			}
		}},
		"reset of the refused": {frame.CodeCalm, func(p *peer) {
			for i := range uint32(1 << 12) {
				p.head(frame.EndStream, 2*i+1, get("/denied")...)
				p.number(frame.Reset, 2*i+1, frame.CodeCancel)
			}
		}},
		"misuse": {frame.CodeCalm, func(p *peer) {
			for i := range uint32(1 << 12) {
				p.head(frame.EndStream, 2*i+1, get("/", "cookie: "+mark)...)
			}
		}},
		"settings": {frame.CodeCalm, func(p *peer) {
			for range 1 << 15 {
				p.put(frame.Settings, 0, 0, nil)
			}
		}},
		"ping": {frame.CodeCalm, func(p *peer) {
			for range 1 << 15 {
				p.put(frame.Ping, 0, 0, make([]byte, 8))
			}
		}},
		"empty data": {frame.CodeCalm, func(p *peer) {
			p.head(0, 1, post()...)
			for range 1 << 15 {
				p.put(frame.Data, 0, 1, nil)
			}
		}},
		"unknown": {frame.CodeCalm, func(p *peer) {
			for range 1 << 15 {
				p.put(99, 0, 0, nil)
			}
		}},
		"header bomb": {frame.CodeProtocol, bomb},
		"a window too large": {frame.CodeFlow, func(p *peer) {
			p.head(0, 1, post("content-type: application/json")...)
			p.number(frame.WindowUpdate, 1, frame.MaxWindow)
			p.number(frame.WindowUpdate, 1, frame.MaxWindow)
		}},
		"more than the window": {frame.CodeFlow, func(p *peer) {
			p.head(0, 1, post()...)
			for range 5 {
				p.put(frame.Data, 0, 1, make([]byte, frame.MaxSize))
			}
		}},
		"an idle stream":     {frame.CodeProtocol, func(p *peer) { p.put(frame.Data, 0, 1, nil) }},
		"an even stream":     {frame.CodeProtocol, func(p *peer) { p.head(0, 2, get("/")...) }},
		"a second end":       {frame.CodeProtocol, func(p *peer) { p.head(frame.EndStream, 1, get("/")...); p.put(frame.Data, 0, 1, []byte("x")) }},
		"a second head":      {frame.CodeProtocol, func(p *peer) { p.head(0, 1, get("/")...); p.head(0, 1, get("/denied")...) }},
		"a trailer of hosts": {frame.CodeProtocol, func(p *peer) { p.head(0, 1, get("/")...); p.head(frame.EndStream, 1, "host: other.test") }},
	}
}

// What a hostile cell may send without end ends its connection, before it costs memory
// or the destination's patience.
func TestFloods(t *testing.T) {
	for name, c := range floods() {
		t.Run(name, func(t *testing.T) {
			l := begin(t, nil, nil, nil, "json:token")
			go func() {
				for range l.up.frames { // all that comes is read
				}
			}()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			sent := make(chan bool)
			go func() {
				defer close(sent)
				c.send(l.agent)
			}()
			f := l.agent.next(frame.GoAway)
			if code := binary.BigEndian.Uint32(f.Payload[4:]); code != c.code {
				t.Errorf("ends by %d", code)
			}
			<-l.end
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
				t.Errorf("it cost %d bytes", grown)
			}
			_, _ = l.agent.c.Close(), l.up.c.Close()
			<-sent
		})
	}
}

// No more streams are open than may be, and no more of a cell's room is taken.
func TestStreamsAreBounded(t *testing.T) {
	l := begin(t, nil, nil, nil, "bearer")
	for i := range uint32(maxStreams) {
		l.agent.head(0, 2*i+1, post()...)
	}
	l.agent.head(0, 2*maxStreams+1, post()...)
	if f := l.agent.next(frame.Reset); f.Stream != 2*maxStreams+1 || number(f) != frame.CodeRefused {
		t.Errorf("%v", f)
	}
	l.over()
	l = begin(t, nil, nil, func(r *Rules) { r.Room.(*ample).most = perStream + 100 }, "json:token")
	l.agent.head(0, 1, post("content-type: application/json")...)
	l.agent.head(0, 3, post()...)
	if f := l.agent.next(frame.Reset); f.Stream != 3 || number(f) != frame.CodeRefused {
		t.Errorf("%v", f)
	}
	l.agent.put(frame.Data, 0, 1, make([]byte, 26))
	if got := l.agent.fields(l.agent.next(frame.Headers)); !strings.Contains(got, "busy") && !strings.Contains(got, "503") {
		t.Errorf("%q", got)
	}
	if why := l.over(); why != flow.Busy {
		t.Error(why.Token())
	}
}

// upload is what is left of a body, and of its stream's window.
type upload struct {
	id   uint32 // 0: it is sent
	body string
	left int
}

// uploadAll uploads by turns as the windows allow.
func (p *peer) uploadAll(all []*upload) {
	conn := frame.FirstWindow
	for open := len(all); open > 0; {
		moved := false
		for _, u := range all {
			if u.id == 0 {
				continue
			}
			k := min(len(u.body), u.left, conn, 3000)
			if k > 0 {
				p.put(frame.Data, 0, u.id, []byte(u.body[:k]))
				u.body, u.left, conn, moved = u.body[k:], u.left-k, conn-k, true
			}
			if u.body == "" {
				p.put(frame.Data, frame.EndStream, u.id, nil)
				u.id, moved = 0, true
				open--
			}
		}
		if !moved {
			f, ok := <-p.updates
			if !ok {
				return
			}
			if f.Stream == 0 {
				conn += int(number(f))
			}
			for _, u := range all {
				if u.id == f.Stream && u.id != 0 {
					u.left += int(number(f))
				}
			}
		}
	}
}

// Whatever the windows, the frames and the bodies that are read whole beside it: all
// data arrives, in order, and never more than the destination has a window for.
func TestWindowsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		initial := rapid.SampledFrom([]int{1, 100, 5000, frame.FirstWindow, 1 << 20}).Draw(t, "window")
		l := begin(t, nil, []frame.Setting{{ID: frame.SettingWindow, Value: uint32(initial)}}, nil, "json:token")
		n := rapid.IntRange(1, 5).Draw(t, "streams")
		most := 1 << 10
		if initial > 1000 {
			most = 60 << 10
		}
		want := map[string]string{}
		var all []*upload
		for i := range n {
			size := rapid.IntRange(0, most).Draw(t, "size")
			path := "/" + string(rune('a'+i))
			head := []string{":method: POST", ":scheme: https", ":authority: api.test", ":path: " + path}
			body := strings.Repeat("0123456789abcdef", size/16)
			want[path] = body
			if rapid.Bool().Draw(t, "whole") {
				head = append(head, "content-type: application/json")
				want[path] = `{"token":"` + value + `","b":"` + body + `"}`
				body = `{"token":"` + mark + `","b":"` + body + `"}`
			}
			l.agent.head(0, uint32(2*i+1), head...)
			all = append(all, &upload{uint32(2*i + 1), body, initial})
		}
		go l.agent.uploadAll(all)
		paths, got, left, conn := map[uint32]string{}, map[string]string{}, map[uint32]int{}, frame.FirstWindow
		for ended := 0; ended < n; {
			f, ok := <-l.up.frames
			if !ok {
				t.Fatal("it has ended")
			}
			switch f.Kind {
			case frame.Headers:
				text := l.up.fields(f)
				_, path, _ := strings.Cut(text, ":path: ")
				paths[f.Stream] = path[:2]
				left[f.Stream] = initial
			case frame.Data:
				got[paths[f.Stream]] += string(f.Payload)
				left[f.Stream] -= len(f.Payload)
				if conn -= len(f.Payload); conn < 0 || left[f.Stream] < 0 {
					t.Fatalf("more than the window")
				}
				if k := len(f.Payload); k > 0 {
					b := frame.AppendNumber(nil, frame.WindowUpdate, 0, uint32(k))
					l.up.write(frame.AppendNumber(b, frame.WindowUpdate, f.Stream, uint32(k)))
					conn, left[f.Stream] = conn+k, left[f.Stream]+k
				}
			}
			if f.Has(frame.EndStream) && (f.Kind == frame.Data || f.Kind == frame.Headers) {
				ended++
			}
		}
		for path, body := range want {
			if got[path] != body {
				t.Errorf("%s: %d bytes, want %d", path, len(got[path]), len(body))
			}
		}
		l.over()
	})
}

// No cut of a request into frames, padded or not, lets a placeholder of another host
// through (BS-4).
func TestNoCutLetsAPlaceholderThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := begin(t, nil, nil, nil, "bearer")
		l.agent.head(0, 1, post()...)
		l.agent.head(0, 3, post()...)
		text := rapid.StringN(0, 10, -1).Draw(t, "front") + other + "."
		go func(cuts []int) {
			for _, n := range cuts {
				if n = min(n, len(text)); n%2 == 0 {
					l.agent.put(frame.Data, 0, 1, []byte(text[:n]))
				} else {
					l.agent.put(frame.Data, frame.Padded, 1, append([]byte("\x02"+text[:n]), 0, 0))
				}
				l.agent.put(frame.Data, 0, 3, []byte("ordinary"))
				text = text[n:]
			}
			l.agent.put(frame.Data, 0, 1, []byte(text))
		}(rapid.SliceOfN(rapid.IntRange(0, 8), 0, 20).Draw(t, "cuts"))
		if f := l.up.next(frame.Reset); f.Stream != 1 {
			t.Errorf("%v", f)
		}
		l.over()
	})
}

// Whatever an agent sends: the destination gets frames that are whole, and no placeholder.
func FuzzAsk(f *testing.F) {
	for _, lines := range [][]string{get("/", "authorization: Bearer "+mark), post("content-type: application/json"), get("/", "cookie: "+mark)} {
		var seed bytes.Buffer
		p := &peer{t: f, c: discard{w: &seed}, heads: newHeads(1 << 20)}
		p.enc = encoder(p)
		p.head(0, 1, lines...)
		p.put(frame.Data, frame.Padded, 1, append([]byte("\x02{\"token\":\""+mark+"\"}"), 0, 0))
		p.head(frame.EndStream, 1, "x: y")
		p.number(frame.WindowUpdate, 0, 5)
		p.number(frame.Reset, 1, 8)
		f.Add(seed.Bytes())
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		l := begin(t, nil, nil, nil, "json:token", "bearer")
		l.agent.write(stream)
		_ = l.over()
		sent := l.up.said.Bytes()
		if bytes.Contains(sent, []byte(mark)) {
			t.Errorf("%q was sent", sent)
		}
		r := frame.Reader{From: bytes.NewReader(sent)}
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	})
}
