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
		p.write(appendBlock(nil, flagEndStream, 2*i+1, append(define, bytes.Repeat([]byte{0xbe}, maxBlock-len(define))...)))
		define = nil
	}
	p.write(appendFrame(nil, framePush, 0, 1, nil))
}

func floods() map[string]flood {
	return map[string]flood{
		"continuation": {codeCalm, func(p *peer) {
			p.put(frameHeaders, 0, 1, []byte{0x88})
			for range 1 << 15 {
				p.put(frameContinuation, 0, 1, bytes.Repeat([]byte{0x88}, 100))
			}
		}},
		"empty continuation": {codeCalm, func(p *peer) {
			p.put(frameHeaders, 0, 1, nil)
			for range 1 << 15 {
				p.put(frameContinuation, 0, 1, nil)
			}
		}},
		"rapid reset": {codeCalm, func(p *peer) {
			for i := range uint32(1 << 12) {
				p.head(flagEndStream, 2*i+1, get("/")...)
				p.number(frameReset, 2*i+1, codeCancel)
			}
		}},
		"reset of the refused": {codeCalm, func(p *peer) {
			for i := range uint32(1 << 12) {
				p.head(flagEndStream, 2*i+1, get("/denied")...)
				p.number(frameReset, 2*i+1, codeCancel)
			}
		}},
		"misuse": {codeCalm, func(p *peer) {
			for i := range uint32(1 << 12) {
				p.head(flagEndStream, 2*i+1, get("/", "cookie: "+mark)...)
			}
		}},
		"settings": {codeCalm, func(p *peer) {
			for range 1 << 15 {
				p.put(frameSettings, 0, 0, nil)
			}
		}},
		"ping": {codeCalm, func(p *peer) {
			for range 1 << 15 {
				p.put(framePing, 0, 0, make([]byte, 8))
			}
		}},
		"empty data": {codeCalm, func(p *peer) {
			p.head(0, 1, post()...)
			for range 1 << 15 {
				p.put(frameData, 0, 1, nil)
			}
		}},
		"unknown": {codeCalm, func(p *peer) {
			for range 1 << 15 {
				p.put(99, 0, 0, nil)
			}
		}},
		"header bomb": {codeProtocol, bomb},
		"a window too large": {codeFlow, func(p *peer) {
			p.head(0, 1, post("content-type: application/json")...)
			p.number(frameWindow, 1, maxWindow)
			p.number(frameWindow, 1, maxWindow)
		}},
		"more than the window": {codeFlow, func(p *peer) {
			p.head(0, 1, post()...)
			for range 5 {
				p.put(frameData, 0, 1, make([]byte, maxFrame))
			}
		}},
		"an idle stream":     {codeProtocol, func(p *peer) { p.put(frameData, 0, 1, nil) }},
		"an even stream":     {codeProtocol, func(p *peer) { p.head(0, 2, get("/")...) }},
		"a second end":       {codeProtocol, func(p *peer) { p.head(flagEndStream, 1, get("/")...); p.put(frameData, 0, 1, []byte("x")) }},
		"a second head":      {codeProtocol, func(p *peer) { p.head(0, 1, get("/")...); p.head(0, 1, get("/denied")...) }},
		"a trailer of hosts": {codeProtocol, func(p *peer) { p.head(0, 1, get("/")...); p.head(flagEndStream, 1, "host: other.test") }},
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
			f := l.agent.next(frameGoAway)
			if code := binary.BigEndian.Uint32(f.payload[4:]); code != c.code {
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
	if f := l.agent.next(frameReset); f.stream != 2*maxStreams+1 || number(f) != codeRefused {
		t.Errorf("%v", f)
	}
	l.over()
	l = begin(t, nil, nil, func(r *Rules) { r.Room.(*ample).most = perStream + 100 }, "json:token")
	l.agent.head(0, 1, post("content-type: application/json")...)
	l.agent.head(0, 3, post()...)
	if f := l.agent.next(frameReset); f.stream != 3 || number(f) != codeRefused {
		t.Errorf("%v", f)
	}
	l.agent.put(frameData, 0, 1, make([]byte, 26))
	if got := l.agent.fields(l.agent.next(frameHeaders)); !strings.Contains(got, "busy") && !strings.Contains(got, "503") {
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
	conn := firstWindow
	for open := len(all); open > 0; {
		moved := false
		for _, u := range all {
			if u.id == 0 {
				continue
			}
			k := min(len(u.body), u.left, conn, 3000)
			if k > 0 {
				p.put(frameData, 0, u.id, []byte(u.body[:k]))
				u.body, u.left, conn, moved = u.body[k:], u.left-k, conn-k, true
			}
			if u.body == "" {
				p.put(frameData, flagEndStream, u.id, nil)
				u.id, moved = 0, true
				open--
			}
		}
		if !moved {
			f, ok := <-p.updates
			if !ok {
				return
			}
			if f.stream == 0 {
				conn += int(number(f))
			}
			for _, u := range all {
				if u.id == f.stream && u.id != 0 {
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
		initial := rapid.SampledFrom([]int{1, 100, 5000, firstWindow, 1 << 20}).Draw(t, "window")
		l := begin(t, nil, []setting{{settingWindow, uint32(initial)}}, nil, "json:token")
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
		paths, got, left, conn := map[uint32]string{}, map[string]string{}, map[uint32]int{}, firstWindow
		for ended := 0; ended < n; {
			f, ok := <-l.up.frames
			if !ok {
				t.Fatal("it has ended")
			}
			switch f.kind {
			case frameHeaders:
				text := l.up.fields(f)
				_, path, _ := strings.Cut(text, ":path: ")
				paths[f.stream] = path[:2]
				left[f.stream] = initial
			case frameData:
				got[paths[f.stream]] += string(f.payload)
				left[f.stream] -= len(f.payload)
				if conn -= len(f.payload); conn < 0 || left[f.stream] < 0 {
					t.Fatalf("more than the window")
				}
				if k := len(f.payload); k > 0 {
					b := appendNumber(nil, frameWindow, 0, uint32(k))
					l.up.write(appendNumber(b, frameWindow, f.stream, uint32(k)))
					conn, left[f.stream] = conn+k, left[f.stream]+k
				}
			}
			if f.has(flagEndStream) && (f.kind == frameData || f.kind == frameHeaders) {
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
					l.agent.put(frameData, 0, 1, []byte(text[:n]))
				} else {
					l.agent.put(frameData, flagPadded, 1, append([]byte("\x02"+text[:n]), 0, 0))
				}
				l.agent.put(frameData, 0, 3, []byte("ordinary"))
				text = text[n:]
			}
			l.agent.put(frameData, 0, 1, []byte(text))
		}(rapid.SliceOfN(rapid.IntRange(0, 8), 0, 20).Draw(t, "cuts"))
		if f := l.up.next(frameReset); f.stream != 1 {
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
		p.put(frameData, flagPadded, 1, append([]byte("\x02{\"token\":\""+mark+"\"}"), 0, 0))
		p.head(flagEndStream, 1, "x: y")
		p.number(frameWindow, 0, 5)
		p.number(frameReset, 1, 8)
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
		r := reader{from: bytes.NewReader(sent)}
		for {
			if _, err := r.next(); err != nil {
				break
			}
		}
	})
}
