package box

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// limited is a box with limits in front of an echo at a literal.
func limited(t *testing.T, limits *skepv1.BoxLimits) (*lab, string) {
	t.Helper()
	port := echoAt(t, public4+":0")
	l := start(t, &skepv1.Assignment{Limits: limits, Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{
		{Id: "echo", Line: 4, Ip: public4, Tcp: true, Ports: []*skepv1.BoxPorts{{First: uint32(port), Last: uint32(port)}}},
	}}}, nil)
	return l, fmt.Sprintf("%s:%d", public4, port)
}

// until tries to connect until it ends as wanted: nil, or an error number.
func (l *lab) until(dst string, want error) net.Conn {
	l.t.Helper()
	for end := time.Now().Add(5 * time.Second); ; {
		c, err := l.dial(dst)
		if want == nil && err == nil || want != nil && errors.Is(err, want) {
			return c
		}
		if c != nil {
			_ = c.Close()
		}
		if time.Now().After(end) {
			l.t.Fatalf("connect: %v, want %v", err, want)
		}
	}
}

func (l *lab) refusedAs(reason string) *skepv1.FlowRecord {
	l.t.Helper()
	return l.daemon.find(l.t, "refused as "+reason, func(r *skepv1.FlowRecord) bool {
		return r.Kind == skepv1.FlowRecord_KIND_DENIED && r.Reason == reason
	})
}

// B13, row 3: with as many flows open as there may be, the kernel refuses the next one
// before its handshake, and lets one in again when there is room.
func TestFullBoxShutsTheDoor(t *testing.T) {
	l, dst := limited(t, &skepv1.BoxLimits{OpenFlows: 2})
	a, b := l.until(dst, nil), l.until(dst, nil)
	says(t, a, "a")
	says(t, b, "b")
	l.until(dst, syscall.ECONNREFUSED)
	before := len(l.daemon.all())
	if _, err := l.dial(dst); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect to a full box: %v", err)
	}
	says(t, a, "a flow that is open is not touched")
	for _, r := range l.daemon.all()[before:] {
		if r.Kind == skepv1.FlowRecord_KIND_INTENT {
			t.Errorf("%v", r)
		}
	}
	_ = a.Close()
	says(t, l.until(dst, nil), "again")
	_ = b.Close()
	l.finish()
	if r := l.refusedAs("busy"); r.Rule != "echo" || r.Destination != dst {
		t.Errorf("%v", r)
	}
}

// New flows over the rate are refused in the kernel, too, as rate-limited.
func TestRateShutsTheDoor(t *testing.T) {
	l, dst := limited(t, &skepv1.BoxLimits{NewFlowsPerSecond: 2})
	var refused, opened int
	pace := time.NewTicker(5 * time.Millisecond) // not more refusals than the log has room for
	defer pace.Stop()
	for begin := time.Now(); time.Since(begin) < 3*time.Second; <-pace.C {
		c, err := l.dial(dst)
		switch {
		case err == nil:
			if _, err = c.Write([]byte("x")); err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			if err == nil {
				opened++
			}
			_ = c.Close()
		case errors.Is(err, syscall.ECONNREFUSED):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if opened < 3 || opened > 2+2*4 || refused == 0 {
		t.Errorf("%d were opened in 3 s at 2/s, %d refused", opened, refused)
	}
	l.finish()
	l.refusedAs("rate-limited")
}

// The owner's limits are the daemon's to count: what it has no room for is not opened,
// and the cell does not try again at once.
func TestOwnerHasNoRoom(t *testing.T) {
	for _, reason := range []string{"busy", "rate-limited"} {
		l, dst := limited(t, &skepv1.BoxLimits{})
		l.daemon.set(func(d *daemon) { d.refuse = reason })
		if c, err := l.dial(dst); err == nil {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%v", err)
			}
		}
		l.refusedAs(reason)
		l.daemon.set(func(d *daemon) { d.refuse = "" })
		says(t, l.until(dst, nil), "room again")
		l.finish()
	}
}

func (d *daemon) set(f func(*daemon)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// A flow is idle after the time that the daemon says.
func TestIdleTimeIsTheDaemons(t *testing.T) {
	l, dst := limited(t, &skepv1.BoxLimits{IdleTcpSeconds: 1})
	c := l.until(dst, nil)
	says(t, c, "x")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("an idle flow: %v", err)
	}
	l.daemon.find(t, "of an idle flow", func(r *skepv1.FlowRecord) bool { return r.Reason == "idle-timeout" })
	l.finish()
}

// A leased box carries what it was lent and tells at its end what that was.
func TestLeasedBytes(t *testing.T) {
	const limit = 3<<20 + 5
	l, dst := limited(t, &skepv1.BoxLimits{Leased: true})
	l.daemon.set(func(d *daemon) { d.left = limit })
	c := l.until(dst, nil)
	var err error
	for b := make([]byte, 32<<10); err == nil; _, err = io.ReadFull(c, b) {
		_, _ = c.Write(b) // what fails here fails there
	}
	r := l.daemon.find(t, "of the end of the budget", func(r *skepv1.FlowRecord) bool {
		return r.Kind == skepv1.FlowRecord_KIND_OUTCOME && r.Reason == "budget-exhausted"
	})
	l.finish()
	if r.BytesUp+r.BytesDown != l.daemon.spent || l.daemon.spent > limit || l.daemon.spent < limit-64<<10 {
		t.Errorf("%d + %d bytes, spent %d of %d", r.BytesUp, r.BytesDown, l.daemon.spent, limit)
	}
}

// B190: while nothing can be recorded a flow's end waits, and keeps the flow's place; it
// is recorded once, with all its bytes, as soon as that is possible.
func TestOutcomeOutlivesAFullDisk(t *testing.T) {
	l, dst := limited(t, &skepv1.BoxLimits{OpenFlows: 1})
	c := l.until(dst, nil)
	says(t, c, "hello")
	l.daemon.set(func(d *daemon) { d.broken = true })
	_ = c.Close()
	l.until(dst, syscall.ECONNREFUSED)
	l.daemon.set(func(d *daemon) { d.broken = false })
	says(t, l.until(dst, nil), "again")
	l.finish()
	n := 0
	for _, r := range l.daemon.all() {
		if r.Kind == skepv1.FlowRecord_KIND_OUTCOME && r.BytesUp == 5 && r.BytesDown == 5 {
			n++
		}
	}
	if n != 2 {
		t.Errorf("two flows of five bytes each way have %d outcomes: %v", n, l.daemon.all())
	}
}
