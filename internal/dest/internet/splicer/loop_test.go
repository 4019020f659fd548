package splicer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
)

// lab is one flow with its far ends.
type lab struct {
	*Flow
	agent, server *net.TCPConn // the far ends
	near          [2]*net.TCPConn
	meter         *Meter
}

func newLab(t testing.TB, l *Loop, idle time.Duration) *lab { return newLabOf(t, l, nil, idle) }

func newLabOf(t testing.TB, l *Loop, bytes *boundary.Bytes, idle time.Duration) *lab {
	t.Helper()
	x := &lab{meter: &Meter{}}
	x.agent, x.near[0] = pair(t)
	x.server, x.near[1] = pair(t)
	var err error
	if x.Flow, err = l.New(x.near[0], x.near[1], x.meter, bytes, idle); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Stop)
	return x
}

// both begins both directions, and leaves the loop alone with the sockets.
func (x *lab) both() {
	x.BeginUp()
	x.BeginDown()
	x.near[0].Close()
	x.near[1].Close()
}

func pair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{c, d} {
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		t.Cleanup(func() { c.Close() })
	}
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

// send writes n seeded bytes in pieces of odd sizes, ends, and gives their sum.
func send(c Stream, seed uint64, n int) ([32]byte, error) {
	random, sizes := rand.NewChaCha8([32]byte{byte(seed)}), rand.New(rand.NewPCG(seed, 1))
	sum, buf := sha256.New(), make([]byte, 300<<10)
	for n > 0 {
		size := 1 + sizes.IntN(100)
		if sizes.IntN(3) == 0 {
			size = 1 + sizes.IntN(len(buf))
		}
		piece := buf[:min(size, n)]
		random.Read(piece)
		sum.Write(piece)
		if _, err := c.Write(piece); err != nil {
			return [32]byte{}, err
		}
		n -= len(piece)
	}
	return [32]byte(sum.Sum(nil)), c.CloseWrite()
}

func receive(c net.Conn, slow bool) (sum [32]byte, n int64, err error) {
	h := sha256.New()
	var w io.Writer = h
	if slow {
		w = halting{h}
	}
	n, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{c}, make([]byte, 7777))
	return [32]byte(h.Sum(nil)), n, err
}

// halting waits now and then, so that whole windows fill up.
type halting struct{ w io.Writer }

func (h halting) Write(b []byte) (int, error) {
	if b[0] < 4 {
		<-time.After(time.Millisecond)
	}
	return h.w.Write(b)
}

// Every byte arrives, in order and once, both ways, in many flows at once, with
// slow readers among them; ends of file are passed on; counts are exact.
func TestBytesAreExact(t *testing.T) {
	l := &Loop{}
	var wait sync.WaitGroup
	for i := range 12 {
		wait.Go(func() {
			x := newLab(t, l, time.Minute)
			x.both()
			up, down := 1+i*977_777, 3+(11-i)*1_234_567
			var ends sync.WaitGroup
			ends.Go(func() { exact(t, x.agent, x.server, uint64(i), up, i%3 == 0) })
			ends.Go(func() { exact(t, x.server, x.agent, uint64(100+i), down, i%3 == 0) })
			ends.Wait()
			if err := errors.Join(x.Up(), x.Down()); err != nil {
				t.Error(err)
			}
			if u, d := x.meter.Up.Load(), x.meter.Down.Load(); u != uint64(up) || d != uint64(down) {
				t.Errorf("counted %d up of %d, %d down of %d", u, up, d, down)
			}
		})
	}
	wait.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ends) != 0 || len(l.behind) != 0 || len(l.pipes) > sparePipe {
		t.Errorf("%d ends, %d shares, %d pipes are left", len(l.ends), len(l.behind), len(l.pipes))
	}
}

// exact sends size bytes and compares what arrives.
func exact(t *testing.T, from, to Stream, seed uint64, size int, slow bool) {
	var want [32]byte
	var sending sync.WaitGroup
	sending.Go(func() {
		var err error
		if want, err = send(from, seed, size); err != nil {
			t.Error(err)
		}
	})
	got, n, err := receive(to, slow)
	sending.Wait()
	if n != int64(size) || err != nil || got != want {
		t.Errorf("%d of %d bytes, %v, the right ones: %v", n, size, err, got == want)
	}
}

// One direction ends and the other goes on (B20), also when data and end of file
// come in one event.
func TestHalfClose(t *testing.T) {
	l := &Loop{}
	for range 200 {
		x := newLab(t, l, time.Minute)
		x.both()
		io.WriteString(x.agent, "ask")
		x.agent.CloseWrite()
		if got, err := io.ReadAll(x.server); string(got) != "ask" || err != nil {
			t.Fatalf("%q %v", got, err)
		}
		for _, word := range []string{"an", "swer"} {
			io.WriteString(x.server, word)
			got := make([]byte, len(word))
			if _, err := io.ReadFull(x.agent, got); err != nil || string(got) != word {
				t.Fatalf("%q %v", got, err)
			}
		}
		x.server.Close()
		if got, err := io.ReadAll(x.agent); len(got) != 0 || err != nil {
			t.Fatalf("%q %v", got, err)
		}
		if err := errors.Join(x.Up(), x.Down()); err != nil {
			t.Fatal(err)
		}
	}
}

// A reset of one side is a reset for the other, also after a half-close.
func TestReset(t *testing.T) {
	for _, half := range []bool{false, true} {
		for _, agent := range []bool{false, true} {
			x := newLab(t, &Loop{}, time.Minute)
			x.both()
			from, to := x.server, x.agent
			if agent {
				from, to = x.agent, x.server
			}
			if half {
				to.CloseWrite()
				io.ReadAll(from)
			}
			from.SetLinger(0)
			from.Close()
			if n, err := to.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("agent %v, half closed %v: the other side saw %v", agent, half, err)
			}
			x.Stop()
		}
	}
}

// A reader that does not read stops its sender: what waits in between is bounded.
func TestBackPressure(t *testing.T) {
	x := newLab(t, &Loop{}, time.Minute)
	x.both()
	_ = x.agent.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	n, err := io.Copy(struct{ io.Writer }{x.agent}, io.LimitReader(zeros{}, 1<<30))
	if err == nil {
		t.Fatalf("%d bytes went into a reader that does not read", n)
	}
	x.loop.mu.Lock()
	waiting := len(x.toUp.left) + x.toUp.piped
	x.loop.mu.Unlock()
	if waiting > pipeSize {
		t.Errorf("%d bytes wait", waiting)
	}
	x.agent.CloseWrite()
	if got, err := io.Copy(io.Discard, x.server); got != n || err != nil {
		t.Errorf("%d of %d bytes, %v", got, n, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestIdle(t *testing.T) {
	l := &Loop{}
	x := newLab(t, l, 300*time.Millisecond)
	x.both()
	for range 8 { // longer than the bound in all
		io.WriteString(x.agent, "x")
		io.ReadFull(x.server, make([]byte, 1))
		<-time.After(50 * time.Millisecond)
	}
	if _, err := x.server.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if err := x.Up(); !errors.Is(err, ErrIdle) {
		t.Error(err)
	}
}

// Its owner may read first, and answer itself at the end.
func TestOwnerReadsFirst(t *testing.T) {
	x := newLab(t, &Loop{}, time.Minute)
	x.BeginDown()
	io.WriteString(x.server, "banner")
	got := make([]byte, 6)
	if _, err := io.ReadFull(x.agent, got); err != nil || string(got) != "banner" {
		t.Fatalf("%q %v", got, err)
	}
	io.WriteString(x.agent, "first")
	if _, err := io.ReadFull(x.near[0], got[:5]); err != nil || string(got[:5]) != "first" {
		t.Fatalf("%q %v", got, err)
	}
	x.Hold()
	x.near[1].Close()
	x.Stop()
	if err := x.Down(); !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
	io.WriteString(x.near[0], "refused")
	x.near[0].Close()
	if got, err := io.ReadAll(x.agent); string(got) != "refused" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if _, err := io.ReadAll(x.server); err != nil {
		t.Error(err)
	}
}

// What came before a direction begins is not lost.
func TestLateBegin(t *testing.T) {
	l := &Loop{}
	for range 50 {
		x := newLab(t, l, time.Minute)
		io.WriteString(x.agent, "early")
		x.agent.CloseWrite()
		x.both()
		if got, err := io.ReadAll(x.server); string(got) != "early" || err != nil {
			t.Fatalf("%q %v", got, err)
		}
		x.Reset(net.ErrClosed)
		if err := x.Down(); err == nil {
			t.Error("a reset looks like an end of file")
		}
	}
}

// A flow of bulk does not hold up another for long.
func TestShares(t *testing.T) {
	l := &Loop{}
	bulk := newLab(t, l, time.Minute)
	bulk.both()
	go io.Copy(struct{ io.Writer }{bulk.agent}, io.LimitReader(zeros{}, 1<<30))
	go io.Copy(io.Discard, struct{ io.Reader }{bulk.server})
	x := newLab(t, l, time.Minute)
	x.both()
	for i := range 200 {
		word := fmt.Sprintf("%08d", i)
		io.WriteString(x.agent, word)
		got := make([]byte, 8)
		if _, err := io.ReadFull(x.server, got); err != nil || !bytes.Equal(got, []byte(word)) {
			t.Fatalf("%q %v", got, err)
		}
	}
}

// A stream over a Unix socket is relayed as TCP is: whole, both ways, with its ends.
func TestUnixSocket(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server, up := pair(t)
	_ = far.SetDeadline(time.Now().Add(30 * time.Second))
	meter := &Meter{}
	f, err := (&Loop{}).New(near.(*net.UnixConn), up, meter, nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	f.BeginUp()
	f.BeginDown()
	_ = errors.Join(near.Close(), up.Close())
	const size = 9_876_543
	var ends sync.WaitGroup
	ends.Go(func() { exact(t, far.(*net.UnixConn), server, 1, size, false) })
	ends.Go(func() { exact(t, server, far.(*net.UnixConn), 2, size+1, true) })
	ends.Wait()
	if err := errors.Join(f.Up(), f.Down()); err != nil || meter.Up.Load() != size || meter.Down.Load() != size+1 {
		t.Errorf("%v, %d up, %d down", err, meter.Up.Load(), meter.Down.Load())
	}
	_ = far.Close()
}
