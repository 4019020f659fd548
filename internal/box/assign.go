package box

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"skep.dev/skep/internal/box/vault"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/secret"
)

// event is one WatchResponse: exactly one of its four.
type event struct {
	assignment *assignment
	update     *names
	policy     *given
	end        bool
}

// given is a policy with what secrets the cell has.
type given struct {
	policy.Policy
	secrets []secret.Bound
}

// assignment is the cell that this box serves.
type assignment struct {
	cell, agent string
	generation  uint64
	policy      *given
	names       names
	limits      limits
	roots       []byte // whom the destinations of secrets are checked against
	successor   bool   // of a box that serves the cell
}

// limits lower the built-in numbers; 0 leaves one as it is (B150).
type limits struct {
	openFlows, newFlows, idleSeconds uint32
	leased                           bool // bytes are carried only as the daemon leases them
}

// names is what the host knows about names and about itself.
type names struct {
	resolvers []netip.AddrPort
	hosts     map[string][]netip.Addr
	own       []netip.Addr
}

var (
	errNoPolicy      = errors.New("read the policy: there is none")
	errNotUnderstood = errors.New("read what the daemon sent")
)

// eventOf reads what the daemon sends. A value that does not parse is an error: a
// rule that is not understood must not be dropped (B88).
func eventOf(message []byte) (event, error) {
	r, e, seen := reader{}, event{}, 0
	r.fields(message, func(f field) {
		seen++
		switch f.number {
		case 1:
			a := r.assignment(r.message(f))
			e.assignment = &a
		case 2:
			n := r.names(r.message(f))
			e.update = &n
		case 3:
			e.end = r.message(f) != nil
		case 4:
			p := r.policy(r.message(f))
			e.policy = &p
		default:
			r.unknown("a message of the daemon", f)
		}
	})
	if seen != 1 {
		r.fail(errWire)
	}
	if r.err != nil {
		return event{}, fmt.Errorf("%w: %w", errNotUnderstood, r.err)
	}
	return e, nil
}

func (r *reader) assignment(b []byte) assignment {
	a := assignment{}
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			a.cell = r.text(f)
		case 2:
			a.agent = r.text(f)
		case 3:
			a.generation = r.number(f, math.MaxUint64)
		case 4:
			p := r.policy(r.message(f))
			a.policy = &p
		case 5:
			a.names = r.names(r.message(f))
		case 6:
			a.limits = r.limits(r.message(f))
		case 7:
			a.roots = r.message(f)
		case 8:
			a.successor = r.flag(f)
		default:
			r.unknown("the assignment", f)
		}
	})
	return a
}

func (r *reader) limits(b []byte) limits {
	l := limits{}
	r.fields(b, func(f field) {
		switch n := uint32(r.number(f, math.MaxUint32)); f.number {
		case 1:
			l.openFlows = n
		case 2:
			l.newFlows = n
		case 3:
			l.idleSeconds = n
		case 4:
			l.leased = n == 1
		default:
			r.unknown("the limits", f)
		}
	})
	return l
}

func (r *reader) policy(b []byte) given {
	p := given{}
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			p.Version = r.text(f)
		case 2:
			p.Rules = append(p.Rules, r.rule(r.message(f)))
		case 3:
			p.Resolved = append(p.Resolved, r.span(r.message(f)))
		case 4:
			p.Model = r.flag(f)
		case 5:
			p.Ceiling = r.ceiling(r.message(f))
		case 6:
			p.AskUnlisted = r.flag(f)
		case 8:
			p.NoDesk = r.flag(f)
		case 7:
			p.Answers = append(p.Answers, r.answer(r.message(f)))
		case 9:
			p.secrets = append(p.secrets, r.secret(r.message(f)))
		default:
			r.unknown("the policy", f)
		}
	})
	p.Bound = vault.Names(p.secrets)
	return p
}

func (r *reader) secret(b []byte) secret.Bound {
	s := secret.Bound{}
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			s.Name = r.text(f)
		case 2:
			s.Hosts = append(s.Hosts, r.text(f))
		case 3:
			s.Ports = append(s.Ports, r.numbers(f)...)
		case 4:
			s.Path = r.text(f)
		case 5:
			place, err := secret.ParsePlace(r.text(f))
			r.fail(err)
			s.As = append(s.As, place)
		case 6:
			s.Set = r.flag(f)
		case 7:
			s.End = r.flag(f)
		case 8:
			s.Placeholder = r.text(f)
		default:
			r.unknown("a secret", f)
		}
	})
	return s
}

// numbers reads a repeated number, which proto3 packs.
func (r *reader) numbers(f field) (out []uint16) {
	for b := r.message(f); len(b) > 0 && r.err == nil; {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > math.MaxUint16 {
			r.fail(errWire)
			return nil
		}
		out, b = append(out, uint16(n)), b[size:]
	}
	return out
}

func (r *reader) ceiling(b []byte) policy.Ceiling {
	c := policy.Ceiling{}
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			c.Limits = r.flag(f)
		case 2:
			c.Allow = append(c.Allow, r.rule(r.message(f)))
		case 3:
			c.Resolved = append(c.Resolved, r.span(r.message(f)))
		case 4:
			c.Deny = append(c.Deny, r.rule(r.message(f)))
		case 5:
			c.Open = append(c.Open, r.span(r.message(f)))
		case 6:
			c.NoFloor = r.flag(f)
		case 7:
			c.Mixed = r.flag(f)
		case 8:
			c.Proxy = r.proxy(r.message(f))
		default:
			r.unknown("the ceiling", f)
		}
	})
	return c
}

func (r *reader) proxy(b []byte) *policy.Proxy {
	x := &policy.Proxy{}
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			x.Host = r.text(f)
		case 2:
			x.Port = uint16(r.number(f, math.MaxUint16))
		case 3:
			x.TLS = r.flag(f)
		case 4:
			x.Roots = r.message(f)
		case 5:
			x.Auth = r.text(f)
		case 6:
			x.Direct = append(x.Direct, r.text(f))
		case 7:
			x.ByName = r.flag(f)
		case 8:
			x.UDP = r.flag(f)
		default:
			r.unknown("the proxy", f)
		}
	})
	return x
}

func (r *reader) rule(b []byte) policy.Rule {
	rule, ports := policy.Rule{}, []right.PortRange(nil)
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			rule.ID = r.text(f)
		case 2:
			rule.Line = int(r.number(f, math.MaxUint32))
		case 3:
			rule.Name = r.text(f)
		case 4:
			rule.Suffix = r.text(f)
		case 5:
			rule.Depth = int(r.number(f, math.MaxUint32))
		case 6:
			rule.IP = r.addr(r.text(f))
		case 7:
			rule.CIDR = r.prefix(r.text(f))
		case 8:
			ports = append(ports, r.portRange(r.message(f)))
		case 9:
			rule.TCP = r.flag(f)
		case 10:
			rule.UDP = r.flag(f)
		case 11:
			rule.Inner = r.inner(r.text(f))
		case 12:
			rule.HTTP = r.flag(f)
		case 13:
			rule.Resolve = append(rule.Resolve, r.addr(r.text(f)))
		case 14:
			rule.Methods = append(rule.Methods, r.text(f))
		case 15:
			rule.Paths = append(rule.Paths, r.text(f))
		case 16:
			rule.EncodedSlash = r.flag(f)
		case 17:
			rule.Correlate = r.flag(f)
		case 18:
			rule.Ask = r.flag(f)
		case 19:
			rule.Hold = time.Duration(r.number(f, uint64(policy.MaxHold.Milliseconds()))) * time.Millisecond
		case 20:
			rule.NoECH = r.flag(f)
		default:
			r.unknown("a rule", f)
		}
	})
	rule.Ports = r.ports(ports)
	return rule
}

func (r *reader) answer(b []byte) policy.Answer {
	a := policy.Answer{Transport: flow.TCP}
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			a.ID = r.text(f)
		case 2:
			a.Name = r.text(f)
		case 3:
			a.Addr = r.addr(r.text(f))
		case 4:
			a.Port = uint16(r.number(f, math.MaxUint16))
		case 5:
			if r.flag(f) {
				a.Transport = flow.UDP
			}
		case 6:
			a.Allow = r.flag(f)
		case 7:
			a.Once = r.flag(f)
		case 8:
			a.Used = r.flag(f)
		case 9:
			a.Drafted = r.flag(f)
		default:
			r.unknown("an answer", f)
		}
	})
	return a
}

func (r *reader) span(b []byte) policy.Range {
	span, ports := policy.Range{}, []right.PortRange(nil)
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			span.CIDR = r.prefix(r.text(f))
		case 2:
			ports = append(ports, r.portRange(r.message(f)))
		default:
			r.unknown("a range", f)
		}
	})
	if !span.CIDR.IsValid() {
		r.fail(errors.New("a range has no addresses"))
	}
	span.Ports = r.ports(ports)
	return span
}

func (r *reader) portRange(b []byte) right.PortRange {
	p := right.PortRange{}
	r.fields(b, func(f field) {
		switch n := uint16(r.number(f, math.MaxUint16)); f.number {
		case 1:
			p.First = n
		case 2:
			p.Last = n
		default:
			r.unknown("a range of ports", f)
		}
	})
	return p
}

func (r *reader) ports(ranges []right.PortRange) right.Ports {
	ports, err := right.NewPorts(ranges...)
	r.fail(err)
	return ports
}

func (r *reader) inner(s string) policy.InnerCheck {
	switch s {
	case "":
		return policy.InnerDefault
	case "off":
		return policy.InnerOff
	case "check":
		return policy.InnerName
	case "tls":
		return policy.InnerTLS
	}
	r.fail(fmt.Errorf("inner %q", s))
	return policy.InnerTLS
}

func (r *reader) addr(s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	r.fail(err)
	return a.Unmap()
}

func (r *reader) prefix(s string) netip.Prefix {
	p, err := netip.ParsePrefix(s)
	r.fail(err)
	return p
}

// names reads a resolver update. A line of the hosts file that is no name or no
// address is skipped: it is the host's file, not ours, and grants nothing.
func (r *reader) names(b []byte) names {
	n := names{hosts: map[string][]netip.Addr{}}
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			if a, err := netip.ParseAddrPort(r.text(f)); err == nil {
				n.resolvers = append(n.resolvers, a)
			}
		case 2:
			r.hosts(r.message(f), n.hosts)
		case 3:
			if a, err := netip.ParseAddr(r.text(f)); err == nil {
				n.own = append(n.own, a.Unmap().WithZone(""))
			}
		default:
			r.unknown("the resolver update", f)
		}
	})
	return n
}

func (r *reader) hosts(b []byte, into map[string][]netip.Addr) {
	host, addresses := "", []netip.Addr(nil)
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			host = r.text(f)
		case 2:
			if a, err := netip.ParseAddr(r.text(f)); err == nil {
				addresses = append(addresses, a.Unmap())
			}
		default:
			r.unknown("a line of the hosts file", f)
		}
	})
	if host, err := name.Host(host); err == nil && len(addresses) > 0 {
		into[host] = append(into[host], addresses...)
	}
}
