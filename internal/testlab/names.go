package testlab

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Query is one question that the name server got.
type Query struct {
	Name string // lower case, no final dot
	Type string // A, AAAA, TXT ...
	TCP  bool
	From netip.AddrPort
}

// Answer is what one query gets. The zero Answer is a name without addresses.
type Answer struct {
	Addrs   []netip.Addr // both families; a query gets those of its type
	CNAME   string       // the addresses stand under this name
	Missing bool         // NXDOMAIN
	Broken  bool         // SERVFAIL
	Silent  bool         // no answer at all
	Short   bool         // truncated over UDP
}

// zone is a name's script and how far each query type is in it.
type zone struct {
	script []Answer
	asked  map[dnsmessage.Type]int
}

// Host gives a name its addresses. Every name without any does not exist.
func (l *Lab) Host(name string, addrs ...string) {
	l.t.Helper()
	l.Script(name, Answer{Addrs: l.parse(addrs)})
}

// Alias gives a name a canonical name, and that its addresses.
func (l *Lab) Alias(name, target string, addrs ...string) {
	l.t.Helper()
	l.Script(name, Answer{CNAME: target, Addrs: l.parse(addrs)})
}

// Rotate gives a name several addresses, and each answer begins with the next one.
func (l *Lab) Rotate(name string, addrs ...string) {
	l.t.Helper()
	all := l.parse(addrs)
	var script []Answer
	for i := range all {
		script = append(script, Answer{Addrs: append(append([]netip.Addr(nil), all[i:]...), all[:i]...)})
	}
	// The last answer is repeated for ever, so a long script turns round often enough.
	for len(script) < 64 {
		script = append(script, script[:len(all)]...)
	}
	l.Script(name, script...)
}

// Script gives a name one answer for each query of a type, in order; the last
// one is repeated. A name that changes its mind (rebinding) is two answers.
func (l *Lab) Script(name string, answers ...Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.zones[canonical(name)] = &zone{answers, map[dnsmessage.Type]int{}}
}

// Addrs parses addresses, for an Answer.
func Addrs(addrs ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func (l *Lab) parse(addrs []string) []netip.Addr {
	l.t.Helper()
	for _, a := range addrs {
		if _, err := netip.ParseAddr(a); err != nil {
			l.t.Fatal(err)
		}
	}
	return Addrs(addrs...)
}

// Queries is every question so far, in order.
func (l *Lab) Queries() []Query {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Query(nil), l.queries...)
}

// Asked is how many questions of a type came for a name.
func (l *Lab) Asked(name, kind string) int {
	n := 0
	for _, q := range l.Queries() {
		if q.Name == canonical(name) && q.Type == kind {
			n++
		}
	}
	return n
}

// serveNames answers on the lab's resolver, over UDP and TCP.
func (l *Lab) serveNames() {
	l.t.Helper()
	at := netip.AddrPortFrom(Resolver, 53)
	u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		l.t.Fatalf("serve names: %v (labs are not for parallel tests)", err)
	}
	l.t.Cleanup(func() { _ = u.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := u.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if answer := l.answer(buf[:n], from, false); answer != nil {
				_, _ = u.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
	ln, _ := l.listen(at.String())
	go acceptEach(ln, l.serveNamesOverTCP)
}

func (l *Lab) serveNamesOverTCP(c net.Conn) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, q); err != nil {
			return
		}
		answer := l.answer(q, c.RemoteAddr().(*net.TCPAddr).AddrPort(), true)
		if answer == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answer records one query and returns the packet for it, nil for silence.
func (l *Lab) answer(packet []byte, from netip.AddrPort, tcp bool) []byte {
	var m dnsmessage.Message
	if m.Unpack(packet) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := canonical(q.Name.String())
	var a Answer
	l.record(func() {
		l.queries = append(l.queries, Query{name, q.Type.String()[len("Type"):], tcp, from})
		z := l.zones[name]
		if z == nil || len(z.script) == 0 {
			a.Missing = true
			return
		}
		a = z.script[min(z.asked[q.Type], len(z.script)-1)]
		z.asked[q.Type]++
	})
	if a.Silent {
		return nil
	}
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true}
	m.Additionals, m.Authorities, m.Answers = nil, nil, nil
	switch {
	case a.Missing:
		m.RCode = dnsmessage.RCodeNameError
	case a.Broken:
		m.RCode = dnsmessage.RCodeServerFailure
	case a.Short && !tcp:
		m.Truncated = true
	default:
		m.Answers = resources(q, a)
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

func resources(q dnsmessage.Question, a Answer) []dnsmessage.Resource {
	var out []dnsmessage.Resource
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
	if a.CNAME != "" {
		target := dnsmessage.MustNewName(canonical(a.CNAME) + ".")
		out = append(out, dnsmessage.Resource{Header: head, Body: &dnsmessage.CNAMEResource{CNAME: target}})
		head.Name = target
	}
	for _, addr := range a.Addrs {
		switch {
		case q.Type == dnsmessage.TypeA && addr.Is4():
			out = append(out, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: addr.As4()}})
		case q.Type == dnsmessage.TypeAAAA && addr.Is6():
			out = append(out, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return out
}
