package internet

import (
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
)

// Both benchmarks have a direct twin, so that only the ratio counts on a noisy
// machine.

func BenchmarkDown(b *testing.B) {
	port, _ := serve(b, func(c *net.TCPConn) {
		buf := make([]byte, 256<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
	b.Run("direct", func(b *testing.B) { down(b, direct(b, port)) })
	b.Run("relayed", func(b *testing.B) {
		l := newLab(b, local(b, "ok.test", port))
		c := l.connect("ok.test", port)
		io.WriteString(c, "x") // not TLS: the inner check is over
		down(b, c)
	})
	b.Run("leased", func(b *testing.B) {
		l := newLab(b, local(b, "ok.test", port))
		l.gate.Bytes = boundary.NewBytes(b.Context(), newPurse(1<<50, 64<<20))
		c := l.connect("ok.test", port)
		io.WriteString(c, "x")
		down(b, c)
	})
}

func down(b *testing.B, c *net.TCPConn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	const piece = 1 << 20
	b.SetBytes(piece)
	buf := make([]byte, piece)
	for b.Loop() {
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	port, _ := serve(b, echo)
	b.Run("direct", func(b *testing.B) { request(b, direct(b, port)) })
	b.Run("relayed", func(b *testing.B) { request(b, newLab(b, local(b, "ok.test", port)).connect("ok.test", port)) })
}

func request(b *testing.B, c *net.TCPConn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	buf := make([]byte, 100)
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func direct(b *testing.B, port uint16) *net.TCPConn {
	c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(int(port)))
	if err != nil {
		b.Fatal(err)
	}
	return c.(*net.TCPConn)
}
