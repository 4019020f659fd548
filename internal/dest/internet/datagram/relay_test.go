package datagram

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
)

// lab is a flow between two pipes, of which one write is one read as of datagrams.
type lab struct {
	*Flow
	agent, peer net.Conn // the far ends
	ended       chan error
}

func begin(ctx context.Context, t *testing.T, f *Flow) *lab {
	l := &lab{Flow: f, ended: make(chan error, 1)}
	f.Room = &Room{}
	l.agent, f.Agent = net.Pipe()
	l.peer, f.Peer = net.Pipe()
	for _, c := range []net.Conn{l.agent, l.peer} {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		t.Cleanup(func() { _ = c.Close() })
	}
	go func() { l.ended <- f.Relay(ctx) }()
	return l
}

func pass(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	if _, err := from.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, MaxPayload)
	if n, err := to.Read(b); err != nil || string(b[:n]) != text {
		t.Fatalf("%q, %v; want %q", b[:n], err, text)
	}
}

func TestPayloadsArePassedOn(t *testing.T) {
	l := begin(t.Context(), t, &Flow{Idle: time.Minute})
	pass(t, l.agent, l.peer, "up")
	pass(t, l.peer, l.agent, "down")
	_ = l.agent.Close()
	if err := <-l.ended; err != nil || l.Up() != 2 || l.Down() != 4 {
		t.Errorf("%v, %d up, %d down", err, l.Up(), l.Down())
	}
	if _, err := l.peer.Write([]byte("late")); err == nil {
		t.Error("the peer's end is still open")
	}
}

func TestEndsOfAFlow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := begin(ctx, t, &Flow{Idle: time.Minute})
	cancel()
	if err := <-l.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("revoked: %v", err)
	}
	l = begin(t.Context(), t, &Flow{Idle: 20 * time.Millisecond})
	if err := <-l.ended; !errors.Is(err, ErrIdle) {
		t.Errorf("idle: %v", err)
	}
}

// purse leases so many bytes, once.
type purse int64

func (p *purse) Lease(context.Context, int64) (int64, error) {
	n := *p
	*p = 0
	return int64(n), nil
}

// A payload that the budget has no room for is not sent in part (R9a).
func TestBudgetIsForWholePayloads(t *testing.T) {
	p := purse(10)
	l := begin(t.Context(), t, &Flow{Idle: time.Minute, Bytes: boundary.NewBytes(t.Context(), &p)})
	pass(t, l.agent, l.peer, "seven..")
	if _, err := l.agent.Write([]byte("too much")); err != nil {
		t.Fatal(err)
	}
	if n, err := l.peer.Read(make([]byte, 100)); err == nil {
		t.Errorf("%d bytes passed the budget", n)
	}
	if err := <-l.ended; !errors.Is(err, boundary.ErrExhausted) || l.Up() != 7 || l.Bytes.Spent() != 7 {
		t.Errorf("%v, %d up, %d spent", err, l.Up(), l.Bytes.Spent())
	}
}

// Of what an agent does not read the oldest goes first (B150).
func TestQueueDropsTheOldest(t *testing.T) {
	room := &Room{}
	q := newQueue(room)
	for i := range 3000 {
		q.put([]byte{byte(i >> 8), byte(i), 1000: 0})
	}
	if q.size > MaxQueue {
		t.Errorf("%d bytes wait", q.size)
	}
	n := 0
	for last := -1; q.size > 0; n++ {
		b, ok := q.next()
		i := int(b[0])<<8 | int(b[1])
		if !ok || last >= 0 && i != last+1 {
			t.Fatalf("%d after %d, %v", i, last, ok)
		}
		last = i
	}
	if n < 900 || n > 1000 {
		t.Errorf("%d payloads were kept", n)
	}
	for range 2 * MaxQueue / perPayload {
		q.put(nil)
	}
	if len(q.waiting) > MaxQueue/perPayload {
		t.Errorf("%d empty payloads wait", len(q.waiting))
	}
	other := newQueue(room)
	for range 100 { // of others, who fill the room
		room.used.Add(MaxQueue)
	}
	other.put([]byte("x"))
	if len(other.waiting) != 0 {
		t.Error("a full room takes more")
	}
	room.used.Add(-100 * MaxQueue)
	q.close()
	other.close()
	if q.put([]byte("late")); room.used.Load() != 0 {
		t.Errorf("%d bytes are still counted", room.used.Load())
	}
	if _, ok := q.next(); ok {
		t.Error("a closed queue gives")
	}
}
