package intercept

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skep.dev/skep/internal/flow"
)

// socket is one end of a WebSocket.
type socket struct {
	t      testing.TB
	in     *bufio.Reader
	out    io.WriteCloser
	masked bool // what it sends is
}

// send writes one frame.
func (s socket) send(head byte, payload []byte) {
	b := []byte{head}
	bit := byte(0)
	if s.masked {
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
	if s.masked { // by zeros, which is as good as any here
		b = append(b, 0, 0, 0, 0)
	}
	_, _ = s.out.Write(append(b, payload...)) // the reader finds what is missing
}

// receive reads one frame, or returns no head at the end.
func (s socket) receive() (head byte, payload []byte) {
	var b [8]byte
	if _, err := io.ReadFull(s.in, b[:2]); err != nil {
		return 0, nil
	}
	head, n := b[0], uint64(b[1]&0x7f)
	masked := b[1]&0x80 != 0
	switch n {
	case 126:
		_, _ = io.ReadFull(s.in, b[:2])
		n = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		_, _ = io.ReadFull(s.in, b[:8])
		n = binary.BigEndian.Uint64(b[:])
	}
	var mask [4]byte
	if masked {
		_, _ = io.ReadFull(s.in, mask[:])
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(s.in, payload); err != nil {
		return 0, nil
	}
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return head, payload
}

// echo is a destination that answers each frame with the same, a ping with a pong, and
// "leak" with the value.
func echo(w http.ResponseWriter, r *http.Request) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nX-Offered: %s\r\n\r\n", r.Header.Get("Sec-WebSocket-Extensions"))
	_ = rw.Flush()
	s := socket{in: rw.Reader, out: c}
	for {
		head, payload := s.receive()
		switch {
		case head == 0:
			return
		case head == 0x89:
			head = 0x8a
		case string(payload) == "leak":
			payload = []byte(value)
		case string(payload) == "auth "+value:
			payload = []byte("welcome")
		}
		s.send(head, payload)
	}
}

// open opens a WebSocket through the gate.
func (l *lab) open(extra string) socket {
	l.t.Helper()
	config := l.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "api.test"
	c := tls.Client(l.agent(), config)
	_, err := fmt.Fprintf(c, "GET /chat HTTP/1.1\r\nHost: api.test:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n", l.port, extra)
	check(l.t, err)
	in := bufio.NewReader(c)
	answer, err := http.ReadResponse(in, nil)
	check(l.t, err)
	if answer.StatusCode != 101 || answer.Header.Get("X-Offered") != "" {
		l.t.Fatalf("%d, extensions %q were offered", answer.StatusCode, answer.Header.Get("X-Offered"))
	}
	return socket{t: l.t, in: in, out: c, masked: true}
}

// expect receives one frame that has to be this one.
func (s socket) expect(head byte, payload []byte) {
	s.t.Helper()
	if h, p := s.receive(); h != head || !bytes.Equal(p, payload) {
		s.t.Errorf("got %x %.40q of %d bytes, want %x %.40q", h, p, len(p), head, payload)
	}
}

// Frames pass both ways, large and small; compression is not offered to the destination
// (N05, BS-10); where `ws` says so, text is filled in (C09).
func TestWebSocket(t *testing.T) {
	l := newLab(t, http1, "api.test", []string{"ws"}, echo)
	s := l.open("Sec-WebSocket-Extensions: permessage-deflate\r\n")
	s.send(0x81, []byte("hello"))
	s.expect(0x81, []byte("hello"))
	s.send(0x89, []byte("are you there"))
	s.expect(0x8a, []byte("are you there"))
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	go s.send(0x82, large)
	s.expect(0x82, large)
	s.send(0x01, []byte("auth skep-sec"))
	s.send(0x89, nil)
	s.expect(0x8a, nil)
	s.send(0x80, []byte(mark[len("skep-sec"):]))
	s.expect(0x81, []byte("welcome"))
	s.send(0x88, []byte("\x03\xe8"))
	s.expect(0x88, []byte("\x03\xe8"))
	_ = s.out.Close()
	if end := <-l.ends; end.Reason != flow.None || end.Up < 1<<24 || end.Down < 1<<24 {
		t.Errorf("%+v", end)
	}
	if want := "[api.test gh ws ]"; fmt.Sprint(l.uses) != want {
		t.Errorf("recorded: %q", l.uses)
	}
}

// What must not pass ends the flow, both ways, and is recorded (BS-3, BS-11).
func TestWebSocketIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		as   string
		head byte
		text string
		why  flow.Reason
		use  string
	}{
		"no place":        {"bearer", 0x81, "auth " + mark, flow.SecretMisplaced, "gh  secret-misplaced"},
		"a binary one":    {"ws", 0x82, "auth " + mark, flow.SecretMisplaced, "gh  secret-misplaced"},
		"another's":       {"ws", 0x81, "skep-secret-other-01234567", flow.SecretUnknown, "  secret-unknown"},
		"too large":       {"ws", 0x81, strings.Repeat("x", 64<<10+1), flow.SecretTooLarge, ""},
		"the value comes": {"bearer", 0x81, "leak", flow.SecretReflected, ""},
		"no frame":        {"bearer", 0xc1, "compressed", flow.None, ""},
	} {
		l := newLab(t, http1, "api.test", []string{c.as}, echo)
		s := l.open("")
		go s.send(c.head, []byte(c.text))
		if head, payload := s.receive(); head != 0 {
			t.Errorf("%s: %x %q came back", name, head, payload)
		}
		if end := <-l.ends; end.Reason != c.why {
			t.Errorf("%s: ends by %q", name, end.Reason.Token())
		}
		if l.has(value) || l.has(mark) {
			t.Errorf("%s: it has arrived", name)
		}
		if l.mu.Lock(); c.use != "" && (len(l.uses) != 1 || !strings.Contains(l.uses[0], c.use)) {
			t.Errorf("%s: recorded %q", name, l.uses)
		}
		l.mu.Unlock()
		_ = s.out.Close()
	}
}

// Only what has been silent for the flow's idle time ends: five minutes between a ping
// and its pong, ten of events that come every half (N05, N06, BS-10).
func TestNothingHasATotalTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := setup{signed: "api.test", as: []string{"bearer"}, memory: true}.build(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/chat" {
				echo(w, r)
				return
			}
			for i := range 20 {
				time.Sleep(30 * time.Second) //nolint:forbidigo // the test's own clock
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
			}
		})
		s := l.open("")
		for range 3 {
			time.Sleep(5 * time.Minute) //nolint:forbidigo // the test's own clock
			s.send(0x89, []byte("x"))
			s.expect(0x8a, []byte("x"))
		}
		_ = s.out.Close()
		begun := time.Now()
		answer, err := l.client.Get(l.url("/events"))
		check(t, err)
		defer answer.Body.Close()
		in := bufio.NewReader(answer.Body)
		for i := range 20 {
			line, err := in.ReadString('\n')
			_, _ = in.ReadString('\n')
			if due := time.Duration(i+1) * 30 * time.Second; err != nil || line != fmt.Sprintf("data: %d\n", i) || time.Since(begun) != due {
				t.Fatalf("%q after %s, %v", line, time.Since(begun), err)
			}
		}
		if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
			t.Errorf("%q %v", rest, err)
		}
		l.client.CloseIdleConnections()
	})
}
