package listener

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
)

// Each benchmark has a direct twin, so that only the ratio counts on a noisy machine.
func BenchmarkThroughput(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				for buf := make([]byte, 256<<10); err == nil; {
					_, err = c.Write(buf)
				}
			}()
		}
	}()
	port := uint16(ln.Addr().(*net.TCPAddr).Port)
	down := func(b *testing.B, r io.Reader) {
		buf := make([]byte, 1<<20)
		b.SetBytes(int64(len(buf)))
		for b.Loop() {
			if _, err := io.ReadFull(r, buf); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("direct", func(b *testing.B) {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		down(b, c)
	})
	b.Run("tunnel", func(b *testing.B) {
		l := newLab(b, func(l *Listener) {
			p := l.Gate.Policy()
			for i := range p.Rules {
				p.Rules[i].Ports[0].First, p.Rules[i].Ports[0].Last = port, port
			}
			if err := l.Gate.Install(p); err != nil {
				b.Fatal(err)
			}
		})
		c := l.dial()
		_ = c.SetDeadline(time.Time{})
		_, _ = io.WriteString(c, connect("127.0.0.1", port))
		r := bufio.NewReader(c)
		answer(b, r)
		down(b, r)
	})
}

func BenchmarkNewFlow(b *testing.B) {
	l := newLab(b, func(l *Listener) { l.Gate.Flows = boundary.OpenFlows })
	one := make([]byte, 1)
	use := func(b *testing.B, c net.Conn, r io.Reader) {
		if _, err := c.Write([]byte("x")); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(r, one); err != nil {
			b.Fatal(err)
		}
		_ = c.Close()
	}
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			c, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(l.port)})
			if err != nil {
				b.Fatal(err)
			}
			use(b, c, c)
		}
	})
	b.Run("tunnel", func(b *testing.B) {
		for b.Loop() {
			c, err := net.Dial("unix", l.path)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.WriteString(c, connect("127.0.0.1", l.port))
			r := bufio.NewReader(c)
			answer(b, r)
			use(b, c, r)
		}
	})
	b.Run("refused", func(b *testing.B) {
		for b.Loop() {
			c, err := net.Dial("unix", l.path)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.WriteString(c, connect("no.test", 443))
			_, _ = io.ReadAll(c)
			_ = c.Close()
		}
	})
}
