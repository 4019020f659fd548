package pause

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// echo is a loop that answers datagrams.
func echo(t *testing.T) (net.Conn, net.PacketConn) {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("udp", c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), client.Close() })
	return client, c
}

func loop(c net.PacketConn) func() error {
	return func() error {
		buf := make([]byte, 100)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return err
			}
			if _, err := c.WriteTo(buf[:n], from); err != nil {
				return err
			}
		}
	}
}

// answered tells whether an answer comes in a while.
func answered(t *testing.T, c net.Conn, within time.Duration) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 100))
	return err == nil
}

func ask(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

// What comes in a pause waits, and is answered after it; after an end it is there for
// another reader of the socket.
func TestWhatComesInAPauseWaits(t *testing.T) {
	client, c := echo(t)
	p, ended := New(), make(chan error, 1)
	go func() { ended <- p.Loop(c.(*net.UDPConn), loop(c)) }()
	ask(t, client)
	if !answered(t, client, 10*time.Second) {
		t.Fatal("no answer before the pause")
	}
	for range 20 {
		if err := p.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		ask(t, client)
		if answered(t, client, 2*time.Millisecond) {
			t.Fatal("answered in the pause")
		}
		p.Go()
		if !answered(t, client, 10*time.Second) {
			t.Fatal("lost in the pause")
		}
	}
	if err := p.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(context.Background()); err == nil {
		t.Error("stopped twice")
	}
	ask(t, client)
	p.End()
	if err := <-ended; err != nil || !p.Over() {
		t.Fatal(err)
	}
	if n, _, err := c.ReadFrom(make([]byte, 100)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// A loop that has ended is not waited for; one that does not stop leaves the others
// running.
func TestOneThatDoesNotStop(t *testing.T) {
	client, c := echo(t)
	_, deaf := echo(t)
	p, block := New(), make(chan struct{})
	dead := make(chan error, 1)
	_, other := echo(t)
	go func() { dead <- p.Loop(other.(*net.UDPConn), func() error { return errors.New("broken") }) }()
	if err := <-dead; err == nil {
		t.Error("the error of a loop is lost")
	}
	go func() {
		_ = p.Loop(deaf.(*net.UDPConn), func() error { <-block; return os.ErrDeadlineExceeded })
	}()
	go func() { _ = p.Loop(c.(*net.UDPConn), loop(c)) }()
	ask(t, client)
	if !answered(t, client, 10*time.Second) {
		t.Fatal("no answer")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	for { // until the deaf one runs
		if err := p.Stop(ctx); err != nil {
			break
		}
		p.Go()
	}
	ask(t, client)
	if !answered(t, client, 10*time.Second) {
		t.Error("the other loop does not run")
	}
	close(block)
}
