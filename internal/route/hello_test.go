package route

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
)

// hello is what crypto/tls sends first for a server name.
func hello(t testing.TB, host string, alpn ...string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer b.Close()
	go func() {
		c := tls.Client(a, &tls.Config{ServerName: host, InsecureSkipVerify: true, NextProtos: alpn})
		c.SetDeadline(time.Now().Add(5 * time.Second))
		_ = c.Handshake()
	}()
	buf := make([]byte, 5)
	if _, err := io.ReadFull(b, buf); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(buf[3:]))
	if _, err := io.ReadFull(b, body); err != nil {
		t.Fatal(err)
	}
	return append(buf, body...)
}

// split cuts the one record of a hello into records of size bytes.
func split(record []byte, size int) []byte {
	var out []byte
	for rest := record[5:]; len(rest) > 0; {
		n := min(size, len(rest))
		out = append(out, record[0], record[1], record[2])
		out = binary.BigEndian.AppendUint16(out, uint16(n))
		out = append(out, rest[:n]...)
		rest = rest[n:]
	}
	return out
}

func feed(b []byte, piece int) (flow.Inner, bool, error) {
	f := &First{}
	for len(b) > 0 {
		n := min(piece, len(b))
		done, err := f.Feed(b[:n])
		if done || err != nil {
			return f.Inner, done, err
		}
		b = b[n:]
	}
	return flow.Inner{}, false, nil
}

// BX-11: one-byte segments and many records are judged the same.
func TestBX11SegmentsAndRecords(t *testing.T) {
	want := flow.Inner{Protocol: flow.TLS, Name: "ok.test", ALPN: "h2,http/1.1"}
	whole := hello(t, "OK.test", "h2", "http/1.1")
	for _, record := range []int{1, 3, 100, 16384} {
		for _, piece := range []int{1, 2, 7, 1 << 20} {
			got, done, err := feed(split(whole, record), piece)
			if !done || err != nil || got != want {
				t.Errorf("records of %d in pieces of %d: %+v %v %v", record, piece, got, done, err)
			}
		}
	}
}

func TestHellosThatNameNobody(t *testing.T) {
	whole := hello(t, "ok.test")
	nameless := hello(t, "")
	sslv2 := []byte{0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 16}
	warning := append([]byte{0x15, 3, 1, 0, 2, 1, 0}, whole...)
	lenient := append([]byte(nil), nameless...)
	lenient[1], lenient[2] = 1, 1 // a record version that Go's server takes
	for what, b := range map[string][]byte{
		"no server name": nameless, "SSLv2": sslv2, "SSLv2 form of 3.x": {0x80, 0x2e, 1, 3, 1, 0, 0x15}, "alert first": warning, "odd version alert": {0x15, 1, 1, 0, 2, 1, 0},
		"change cipher first": append([]byte{0x14, 3, 3, 0, 1, 1}, whole...), "empty record first": append([]byte{0x16, 3, 1, 0, 0}, whole...),
		"odd empty record": append([]byte{0x16, 1, 1, 0, 0}, whole...), "other handshake": {0x16, 3, 1, 0, 4, 0, 0, 0, 0}, "odd version": lenient,
		"alert in the middle": append(append([]byte{}, split(whole, 10)[:15]...), warning...), "two names": twice(t, whole),
	} {
		for _, piece := range []int{1, 1 << 20} {
			got, done, err := feed(b, piece)
			if !done || err != nil || got.Protocol != flow.TLS || got.Name != "" {
				t.Errorf("%s in pieces of %d: %+v %v %v", what, piece, got, done, err)
			}
		}
	}
}

// twice repeats the server name extension with another name, by patching a hello
// that carries none: the parser must not pick one of two.
func twice(t *testing.T, whole []byte) []byte {
	t.Helper()
	at := bytes.Index(whole, []byte("ok.test")) - 9
	ext := append([]byte(nil), whole[at:at+16]...)
	out := append(append(append([]byte(nil), whole[:at]...), bytes.Replace(ext, []byte("ok"), []byte("no"), 1)...), whole[at:]...)
	for _, fix := range []struct{ at, size int }{{3, 2}, {7, 2}} {
		binary.BigEndian.PutUint16(out[fix.at:], binary.BigEndian.Uint16(out[fix.at:])+16)
	}
	c := cursor{b: out[9:]}
	c.skip(34)
	c.take(1)
	c.take(2)
	c.take(1)
	pos := len(out) - len(c.b)
	binary.BigEndian.PutUint16(out[pos:], binary.BigEndian.Uint16(out[pos:])+16)
	return out
}

func TestNamesThatAreNoNames(t *testing.T) {
	whole := hello(t, "1-2-3-4.x")
	if got, _, _ := feed(bytes.Replace(whole, []byte("1-2-3-4.x"), []byte("127.0.0.1"), 1), 99); got.Name != NotAName {
		t.Errorf("%+v", got)
	}
	if got, _, _ := feed(bytes.Replace(whole, []byte("1-2-3-4.x"), []byte("ok.test\x00x"), 1), 99); got.Name != NotAName {
		t.Errorf("%+v", got)
	}
}

// BX-12: other protocols pass, at once.
func TestOtherProtocols(t *testing.T) {
	mysql := append([]byte{0x16, 0x02, 0, 1, 0x85, 0xa6, 0xff, 0x19}, make([]byte, 100)...)
	for what, b := range map[string][]byte{
		"ssh": []byte("SSH-2.0-x\r\n"), "postgres": {0, 0, 0, 8, 4, 210, 22, 47}, "mysql": mysql, "redis": []byte("*1\r\n$4\r\nPING\r\n"), "http": []byte("GET / HTTP/1.1\r\n"),
	} {
		if got, done, err := feed(b, 1<<20); !done || err != nil || got.Protocol != flow.Opaque {
			t.Errorf("%s: %+v %v %v", what, got, done, err)
		}
	}
}

func TestEndlessHello(t *testing.T) {
	b := []byte{0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff}
	b = append(b, make([]byte, 16384-4)...)
	for len(b) < MaxHello+20000 {
		b = append(append(b, 0x16, 3, 1, 0x40, 0), make([]byte, 16384)...)
	}
	if _, _, err := feed(b, 1000); !errors.Is(err, ErrHelloTooLarge) {
		t.Error(err)
	}
}

func TestReadFirstStartsTheClockAtTheFirstByte(t *testing.T) {
	r, w := io.Pipe()
	begun := make(chan struct{})
	result := make(chan *First)
	go func() {
		f, _ := ReadFirst(r, func() { close(begun) })
		result <- f
	}()
	select {
	case <-begun:
		t.Fatal("nothing was sent yet")
	default:
	}
	w.Write([]byte("SSH"))
	<-begun
	if f := <-result; string(f.Bytes()) != "SSH" || f.Inner.Protocol != flow.Opaque {
		t.Errorf("%+v", f)
	}
	f, err := ReadFirst(strings.NewReader("\x16\x03"), func() {})
	if err == nil || len(f.Bytes()) != 2 {
		t.Error("the end before a whole hello is an error")
	}
}

func FuzzFirst(f *testing.F) {
	f.Add(hello(f, "ok.test", "h2"), 1)
	f.Add([]byte("SSH-2.0"), 3)
	f.Add([]byte{0x80, 0x2e, 1, 0, 2}, 2)
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		if piece < 1 {
			return
		}
		a, done, err := feed(b, piece)
		whole, wdone, werr := feed(b, len(b)+1)
		if done != wdone || a != whole || (err == nil) != (werr == nil) && len(b) <= MaxHello {
			t.Fatalf("%x: pieces of %d give %+v %v %v, whole %+v %v %v", b, piece, a, done, err, whole, wdone, werr)
		}
	})
}
