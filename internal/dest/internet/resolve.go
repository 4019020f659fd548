package internet

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
)

const (
	tryTime   = 3 * time.Second // one question to one resolver
	laterTime = time.Second     // for the other family, once one has addresses
	maxReply  = 65535
)

var (
	errNoSuchName = errors.New("no such name")
	errServer     = errors.New("resolver failed")
)

// lookup finds the addresses of a name, A and AAAA together, from the hosts
// table or by one question of each kind (B101). The error is a *boundary.Failure.
func (n known) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if addrs := n.hosts[host]; len(addrs) > 0 {
		return addrs, nil
	}
	ctx, cancel := context.WithTimeout(ctx, boundary.ResolveTime)
	defer cancel()
	type result struct {
		addrs []netip.Addr
		err   error
	}
	results := make(chan result, 2)
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		go func() {
			addrs, err := n.ask(ctx, host, kind)
			results <- result{addrs, err}
		}()
	}
	var addrs []netip.Addr
	var errs []error
	var later <-chan time.Time
	for range 2 {
		select {
		case r := <-results:
			addrs = append(addrs, r.addrs...)
			errs = append(errs, r.err)
		case <-later:
		}
		// One family must not wait long for the other's dead resolver.
		if len(addrs) > 0 && later == nil {
			t := time.NewTimer(laterTime)
			defer t.Stop()
			later = t.C
		}
	}
	if len(addrs) > 0 {
		return addrs, nil
	}
	return nil, unresolved(host, errors.Join(errs...))
}

func unresolved(host string, err error) error {
	detail := "dns_error"
	if isTimeout(err) {
		detail = "dns_timeout"
	}
	if err == nil {
		err = errNoSuchName
	}
	return &boundary.Failure{Reason: flow.ResolveFailed, Detail: detail, Err: fmt.Errorf("resolve %s: %w", host, err)}
}

// ask puts one question to the resolvers in order, twice around.
func (n known) ask(ctx context.Context, host string, kind dnsmessage.Type) ([]netip.Addr, error) {
	if len(n.resolvers) == 0 {
		return nil, errors.New("no resolver is known")
	}
	var last error
	for range 2 {
		for _, server := range n.resolvers {
			addrs, err := askOne(ctx, server, host, kind)
			if err == nil || errors.Is(err, errNoSuchName) || ctx.Err() != nil {
				return addrs, err
			}
			last = err
		}
	}
	return nil, last
}

func askOne(ctx context.Context, server netip.AddrPort, host string, kind dnsmessage.Type) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	query, q, err := question(host, kind)
	if err != nil {
		return nil, err
	}
	reply, truncated, err := exchange(ctx, "udp", server, query, q)
	if err == nil && truncated {
		reply, _, err = exchange(ctx, "tcp", server, query, q)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", server, err)
	}
	return answers(reply, q)
}

func question(host string, kind dnsmessage.Type) ([]byte, dnsmessage.Question, error) {
	name, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return nil, dnsmessage.Question{}, fmt.Errorf("make a question for %s: %w", host, err)
	}
	q := dnsmessage.Question{Name: name, Type: kind, Class: dnsmessage.ClassINET}
	var id [2]byte
	rand.Read(id[:])
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: binary.BigEndian.Uint16(id[:]), RecursionDesired: true})
	if err := errors.Join(b.StartQuestions(), b.Question(q)); err != nil {
		return nil, q, fmt.Errorf("make a question for %s: %w", host, err)
	}
	query, err := b.Finish()
	return query, q, err
}

// exchange sends a query on a connected socket with a port of the kernel's
// choice, and skips what is no answer to it.
func exchange(ctx context.Context, network string, server netip.AddrPort, query []byte, q dnsmessage.Question) ([]byte, bool, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, server.String())
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = c.Close() }()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return nil, false, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if network == "tcp" {
		return exchangeTCP(c, query, q)
	}
	if _, err := c.Write(query); err != nil {
		return nil, false, err
	}
	buf := make([]byte, maxReply)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return nil, false, err
		}
		if ok, truncated := isReply(buf[:n], query, q); ok {
			return buf[:n], truncated, nil
		}
	}
}

func exchangeTCP(c net.Conn, query []byte, q dnsmessage.Question) ([]byte, bool, error) {
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, false, err
	}
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, false, err
	}
	reply := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, reply); err != nil {
		return nil, false, err
	}
	if ok, _ := isReply(reply, query, q); !ok {
		return nil, false, errServer
	}
	return reply, false, nil
}

// isReply: the id and the one question must be ours.
func isReply(reply, query []byte, q dnsmessage.Question) (ok, truncated bool) {
	var p dnsmessage.Parser
	h, err := p.Start(reply)
	if err != nil || !h.Response || h.ID != binary.BigEndian.Uint16(query) {
		return false, false
	}
	got, err := p.Question()
	same := err == nil && got.Type == q.Type && got.Class == q.Class && strings.EqualFold(got.Name.String(), q.Name.String())
	return same, h.Truncated
}

// answers collects the addresses of the name, along the aliases in the answer.
// Addresses of any other name in it are not taken.
func answers(reply []byte, q dnsmessage.Question) ([]netip.Addr, error) {
	var m dnsmessage.Message
	if err := m.Unpack(reply); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	switch m.RCode {
	case dnsmessage.RCodeSuccess:
	case dnsmessage.RCodeNameError:
		return nil, errNoSuchName
	default:
		return nil, fmt.Errorf("%w: %s", errServer, m.RCode)
	}
	alias := map[string]string{}
	for _, a := range m.Answers {
		if c, ok := a.Body.(*dnsmessage.CNAMEResource); ok {
			alias[strings.ToLower(a.Header.Name.String())] = strings.ToLower(c.CNAME.String())
		}
	}
	wanted := map[string]bool{}
	for n := strings.ToLower(q.Name.String()); n != "" && !wanted[n]; n = alias[n] {
		wanted[n] = true
	}
	var out []netip.Addr
	for _, a := range m.Answers {
		if !wanted[strings.ToLower(a.Header.Name.String())] {
			continue
		}
		switch b := a.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, netip.AddrFrom4(b.A))
		case *dnsmessage.AAAAResource:
			out = append(out, netip.AddrFrom16(b.AAAA).Unmap())
		}
	}
	return out, nil
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
