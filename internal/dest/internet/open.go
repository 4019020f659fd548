package internet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
)

var errNoPermit = errors.New("open without a valid permit")

// Open resolves, judges and dials (B101 to B103). The error is a
// *boundary.Failure.
func (d *Dest) Open(ctx context.Context, p boundary.Permit) (boundary.Upstream, error) {
	q := p.Request()
	if !p.Valid() || q.Transport != flow.TCP && q.Transport != flow.UDP {
		return nil, &boundary.Failure{Reason: flow.PolicyUnavailable, Err: errNoPermit}
	}
	through := p.Through()
	if through != nil && through.ByName && q.Name != "" {
		return d.openThrough(ctx, p, through, nil, 0)
	}
	found, err := d.candidates(ctx, p)
	if err != nil {
		return nil, err
	}
	kept, dropped := keep(p, found)
	if len(kept) == 0 || dropped > 0 && p.RefuseMixed() {
		return nil, &boundary.Failure{Reason: flow.ResolvedAddressDenied, Dropped: dropped}
	}
	if through != nil {
		return d.openThrough(ctx, p, through, kept, dropped)
	}
	if q.Transport == flow.UDP {
		return d.openUDP(ctx, p, kept, dropped)
	}
	c, err := race(ctx, kept, q.Port)
	if err != nil {
		return nil, &boundary.Failure{Reason: flow.DialFailed, Detail: dialDetail(err), Dropped: dropped, Err: err}
	}
	return &upstream{conn: c, dest: d, permit: p, dropped: dropped}, nil
}

// candidates are the addresses to judge: the literal, what the rule says, or
// what the name resolves to now.
func (d *Dest) candidates(ctx context.Context, p boundary.Permit) ([]netip.Addr, error) {
	q := p.Request()
	if q.Addr.IsValid() {
		return []netip.Addr{q.Addr}, nil
	}
	if fixed := p.Resolve(); len(fixed) > 0 {
		return fixed, nil
	}
	return d.current().lookup(ctx, q.Name)
}

// keep judges each address and orders those that stay for dialing: families in
// turn, IPv6 first (RFC 8305, section 4).
func keep(p boundary.Permit, found []netip.Addr) (kept []netip.Addr, dropped int) {
	var six, four []netip.Addr
	for _, a := range found {
		a = a.Unmap()
		switch {
		case slices.Contains(six, a) || slices.Contains(four, a):
		case !p.Keeps(a):
			dropped++
		case a.Is6():
			six = append(six, a)
		default:
			four = append(four, a)
		}
	}
	for len(six)+len(four) > 0 {
		if len(six) > 0 {
			kept, six = append(kept, six[0]), six[1:]
		}
		if len(four) > 0 {
			kept, four = append(kept, four[0]), four[1:]
		}
	}
	return kept, dropped
}

// race dials the addresses one after the other, the next as soon as one fails or
// 250 ms have passed, until one answers (B103). Those that lose are closed.
func race(ctx context.Context, addrs []netip.Addr, port uint16) (*net.TCPConn, error) {
	if len(addrs) == 1 { // the usual case needs nobody beside it
		return dial(ctx, netip.AddrPortFrom(addrs[0], port))
	}
	ctx, cancel := context.WithTimeout(ctx, boundary.DialAllTime)
	defer cancel()
	type result struct {
		c   *net.TCPConn
		err error
	}
	results := make(chan result, len(addrs))
	started, ended := 0, 0
	start := func() {
		a := netip.AddrPortFrom(addrs[started], port)
		started++
		go func() {
			c, err := dial(ctx, a)
			results <- result{c, err}
		}()
	}
	// Whoever answers after the end is closed by a reader that outlives us.
	defer func() {
		left := started - ended
		go func() {
			for range left {
				if r := <-results; r.c != nil {
					_ = r.c.Close()
				}
			}
		}()
	}()
	var errs []error
	next := time.NewTimer(0)
	defer next.Stop()
	for ended < len(addrs) {
		select {
		case <-next.C:
			if started < len(addrs) {
				start()
				next.Reset(boundary.DialStagger)
			}
		case r := <-results:
			ended++
			if r.err == nil {
				return r.c, nil
			}
			errs = append(errs, r.err)
			next.Reset(0)
		case <-ctx.Done():
			return nil, errors.Join(append(errs, ctx.Err())...)
		}
	}
	return nil, errors.Join(errs...)
}

func dial(ctx context.Context, a netip.AddrPort) (*net.TCPConn, error) {
	c, err := (&net.Dialer{Timeout: boundary.DialTime}).DialContext(ctx, "tcp", a.String())
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", a, err)
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("dial %s: not a TCP connection", a)
	}
	return t, nil
}

func dialDetail(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused"
	case isTimeout(err):
		return "connection_timeout"
	}
	return "destination_unavailable"
}
