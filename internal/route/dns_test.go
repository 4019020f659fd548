package route

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"skep.dev/skep/internal/name"
)

type gate struct {
	mu       sync.Mutex
	admitted map[string]netip.Addr
	gone     []netip.Addr
	err      error
	block    bool
}

func (g *gate) Admit(ctx context.Context, host string, addr netip.Addr) error {
	if g.block {
		<-ctx.Done()
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.admitted == nil {
		g.admitted = map[string]netip.Addr{}
	}
	g.admitted[host] = addr
	return g.err
}

func (g *gate) Withdraw(addr netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = append(g.gone, addr)
}

func resolver(g Admitter) *Resolver {
	return &Resolver{Table: NewTable(100), Gate: g, Rate: NewBucket(10000, time.Now), IPv6: true}
}

func query(host string, kind dnsmessage.Type, class dnsmessage.Class) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(host), Type: kind, Class: class}}}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func ask(t *testing.T, r *Resolver, q []byte) dnsmessage.Message {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(r.Answer(context.Background(), q)); err != nil {
		t.Fatal(err)
	}
	if m.ID != 7 || !m.Response || !m.Authoritative || !m.RecursionAvailable {
		t.Errorf("header %+v", m.Header)
	}
	return m
}

// BG-6 and BX-14: what is answered, and what is empty.
func TestBG6Answers(t *testing.T) {
	r := resolver(&gate{})
	for _, c := range []struct {
		host string
		kind dnsmessage.Type
		n    int
		code dnsmessage.RCode
	}{
		{"ok.test.", dnsmessage.TypeA, 1, dnsmessage.RCodeSuccess}, {"ok.test.", dnsmessage.TypeAAAA, 1, dnsmessage.RCodeSuccess},
		{"ok.test.", dnsmessage.TypeMX, 0, dnsmessage.RCodeSuccess}, {"ok.test.", dnsmessage.TypeSRV, 0, dnsmessage.RCodeSuccess},
		{"ok.test.", dnsmessage.TypeTXT, 0, dnsmessage.RCodeSuccess}, {"ok.test.", 65, 0, dnsmessage.RCodeSuccess},
		{"ok.test.", 64, 0, dnsmessage.RCodeSuccess}, {"ok.test.", dnsmessage.TypeALL, 0, dnsmessage.RCodeSuccess},
		{"4.3.2.1.in-addr.arpa.", dnsmessage.TypePTR, 0, dnsmessage.RCodeSuccess},
		{"denied.nowhere.", dnsmessage.TypeA, 1, dnsmessage.RCodeSuccess}, {name.Model + ".", dnsmessage.TypeA, 1, dnsmessage.RCodeSuccess},
		{"2130706433.", dnsmessage.TypeA, 0, dnsmessage.RCodeNameError}, {"a b.test.", dnsmessage.TypeA, 0, dnsmessage.RCodeNameError}, {".", dnsmessage.TypeA, 0, dnsmessage.RCodeNameError},
	} {
		m := ask(t, r, query(c.host, c.kind, dnsmessage.ClassINET))
		if len(m.Answers) != c.n || m.RCode != c.code {
			t.Errorf("%s %s: %d answers, %s", c.host, c.kind, len(m.Answers), m.RCode)
		}
		if c.n == 1 && m.Answers[0].Header.TTL != 3600 {
			t.Errorf("TTL %d", m.Answers[0].Header.TTL)
		}
	}
	if m := ask(t, r, query("ok.test.", dnsmessage.TypeA, dnsmessage.ClassCHAOS)); len(m.Answers) != 0 {
		t.Error("another class is empty")
	}
}

func TestLocalhostIsLoopback(t *testing.T) {
	g := &gate{}
	r := resolver(g)
	for kind, want := range map[dnsmessage.Type]string{dnsmessage.TypeA: "127.0.0.1", dnsmessage.TypeAAAA: "::1"} {
		for _, host := range []string{"localhost.", "x.LOCALHOST."} {
			if got := address(ask(t, r, query(host, kind, dnsmessage.ClassINET))); got.String() != want {
				t.Errorf("%s is %s", host, got)
			}
		}
	}
	if len(g.admitted) != 0 {
		t.Error("loopback needs no gate")
	}
}

func TestSpellingsShareAnAddress(t *testing.T) {
	r := resolver(&gate{})
	a := address(ask(t, r, query("ok.test.", dnsmessage.TypeA, dnsmessage.ClassINET)))
	b := address(ask(t, r, query("OK.tEsT.", dnsmessage.TypeA, dnsmessage.ClassINET)))
	if a != b {
		t.Errorf("%s and %s", a, b)
	}
}

func TestNoIPv6MeansEmpty(t *testing.T) {
	r := resolver(&gate{})
	r.IPv6 = false
	if m := ask(t, r, query("ok.test.", dnsmessage.TypeAAAA, dnsmessage.ClassINET)); len(m.Answers) != 0 || m.RCode != dnsmessage.RCodeSuccess {
		t.Errorf("%+v", m)
	}
}

// The answer never leaves before the kernel has the address (B14).
func TestGateFailureIsServfail(t *testing.T) {
	for _, g := range []*gate{{err: errors.New("no")}, {block: true}} {
		start := time.Now()
		if m := ask(t, resolver(g), query("ok.test.", dnsmessage.TypeA, dnsmessage.ClassINET)); m.RCode != dnsmessage.RCodeServerFailure || len(m.Answers) != 0 {
			t.Errorf("%+v", m)
		}
		if time.Since(start) > 2*time.Second {
			t.Error("the wait is bounded")
		}
	}
}

func TestEvictedAddressLeavesTheGate(t *testing.T) {
	g := &gate{}
	r := resolver(g)
	r.Table = NewTable(1)
	a := address(ask(t, r, query("a.test.", dnsmessage.TypeA, dnsmessage.ClassINET)))
	ask(t, r, query("b.test.", dnsmessage.TypeA, dnsmessage.ClassINET))
	if len(g.gone) != 1 || g.gone[0] != a {
		t.Errorf("withdrawn: %v", g.gone)
	}
}

func TestMalformedQueries(t *testing.T) {
	r := resolver(&gate{})
	if r.Answer(context.Background(), []byte("short")) != nil {
		t.Error("nothing to answer")
	}
	reply := query("ok.test.", dnsmessage.TypeA, dnsmessage.ClassINET)
	reply[2] |= 0x80
	if r.Answer(context.Background(), reply) != nil {
		t.Error("a reply gets no reply")
	}
	two := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName("a."), Type: 1, Class: 1}, {Name: dnsmessage.MustNewName("b."), Type: 1, Class: 1}}}
	b, _ := two.Pack()
	if m := ask(t, r, b); m.RCode != dnsmessage.RCodeFormatError {
		t.Error(m.RCode)
	}
	update := query("ok.test.", dnsmessage.TypeA, dnsmessage.ClassINET)
	update[2] |= 5 << 3
	if m := ask(t, r, update); m.RCode != dnsmessage.RCodeNotImplemented {
		t.Error(m.RCode)
	}
	r.Rate = nil
	if m := ask(t, r, query("ok.test.", dnsmessage.TypeA, dnsmessage.ClassINET)); m.RCode != dnsmessage.RCodeServerFailure {
		t.Error(m.RCode)
	}
}

func TestServeBothTransports(t *testing.T) {
	r := resolver(&gate{})
	ctx, cancel := context.WithCancel(context.Background())
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.ServeUDP(ctx, u) })
	wg.Go(func() { _ = r.ServeTCP(ctx, l) })
	defer func() { cancel(); u.Close(); l.Close(); wg.Wait() }()

	c, err := net.Dial("udp", u.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write(query("ok.test.", dnsmessage.TypeA, dnsmessage.ClassINET))
	buf := make([]byte, 512)
	n, err := c.Read(buf)
	if err != nil || n < 12 {
		t.Fatal(n, err)
	}
	d, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 2 {
		q := query("ok.test.", dnsmessage.TypeA, dnsmessage.ClassINET)
		d.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...))
		var size [2]byte
		io.ReadFull(d, size[:])
		got := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(d, got); err != nil || string(got) != string(buf[:n]) {
			t.Fatalf("TCP answers %x, UDP %x, %v", got, buf[:n], err)
		}
	}
}

func address(m dnsmessage.Message) netip.Addr {
	if len(m.Answers) != 1 {
		return netip.Addr{}
	}
	switch b := m.Answers[0].Body.(type) {
	case *dnsmessage.AResource:
		return netip.AddrFrom4(b.A)
	case *dnsmessage.AAAAResource:
		return netip.AddrFrom16(b.AAAA)
	}
	return netip.Addr{}
}

func FuzzAnswer(f *testing.F) {
	f.Add(query("ok.test.", dnsmessage.TypeA, dnsmessage.ClassINET))
	f.Add(query("localhost.", dnsmessage.TypeAAAA, dnsmessage.ClassANY))
	f.Add([]byte(strings.Repeat("\xff", 40)))
	f.Fuzz(func(t *testing.T, q []byte) {
		r := resolver(&gate{})
		reply := r.Answer(context.Background(), q)
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil || !m.Response || len(m.Answers) > 1 || len(reply) > 512 {
			t.Fatalf("%x -> %x: %v", q, reply, err)
		}
	})
}
