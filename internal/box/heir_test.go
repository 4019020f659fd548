package box

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/sys"
)

// heir is another box that takes the cell of l's.
type heir struct {
	link   *boxlink.Link
	result chan error
}

// handOver gives the cell to another box, and makes that one l's; before is the one
// before.
func (l *linked) handOver(a *skepv1.Assignment) (before heir) {
	l.t.Helper()
	socket, end, err := sys.SeqpacketPair()
	if err != nil {
		l.t.Fatal(err)
	}
	next, result := l.behind(end, a)
	err = l.link.HandOver(within(l.t, 10*time.Second), socket)
	_ = socket.Close()
	if err == nil {
		err = next.Ready(within(l.t, 10*time.Second))
	}
	if err == nil {
		err = l.link.Part(within(l.t, 10*time.Second))
	}
	if err != nil {
		select {
		case why := <-l.result:
			l.t.Fatalf("%v; the box that left: %v", err, why)
		case <-time.After(time.Second):
			l.t.Fatal(err)
		}
	}
	before = heir{l.link, l.result}
	l.link, l.result = next, result
	return before
}

func (h heir) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-h.result:
		if err != nil || !h.link.Finished() {
			t.Errorf("the box that left ended with %v, finished %v", err, h.link.Finished())
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the box that left does not end")
	}
}

// denied is how many refusals the records stand for.
func (b *book) refusals() (n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.denied
}

// The box of a cell is replaced again and again while flows come and go, names are asked
// for and the kernel refuses: no connect fails, names keep their addresses, what is open
// goes on in the box that has it, and everything is recorded once.
func TestBoxIsReplacedUnderFlows(t *testing.T) {
	port := echoAt(t, public4+":0")
	a := &skepv1.Assignment{
		Cell: "cell", Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{
			nameRule("ok.test", public4, port), {Id: "lit", Ip: public4, Tcp: true, Ports: []*skepv1.BoxPorts{{First: uint32(port), Last: uint32(port)}}},
		}}, Limits: &skepv1.BoxLimits{Leased: true}, Resolver: &skepv1.ResolverUpdate{Resolvers: []string{"127.0.0.1:9"}},
	}
	for i := range 200 {
		a.Policy.Rules = append(a.Policy.Rules, nameRule(fmt.Sprintf("n%d.test", i), public4, port))
	}
	l := startLinked(t, a)
	addr := l.resolve("ok.test", false)
	dst := netip.AddrPortFrom(addr, port).String()
	stop := make(chan struct{})
	var agents sync.WaitGroup
	var flows, refused [2]int
	for i := range flows {
		agents.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				to := dst
				if n%2 == 1 {
					to = netip.AddrPortFrom(l.resolve(fmt.Sprintf("n%d.test", n%200), n%4 == 1), port).String()
				}
				c, err := l.dial(to)
				if err != nil {
					t.Errorf("flow %d to %s: %v", n, to, err)
					return
				}
				flows[i]++
				says(t, c, "hello")
				_ = c.Close()
				if _, err := l.dial("9.9.9.9:443"); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Error(err)
				}
				refused[i]++
			}
		})
	}
	for i := range 8 {
		kept, err := l.dial(dst)
		if err != nil {
			t.Fatal(err)
		}
		says(t, kept, "hello")
		before := l.handOver(a)
		if again := l.resolve("ok.test", false); again != addr {
			t.Fatalf("after %d boxes ok.test is %s, and was %s", i+1, again, addr)
		}
		says(t, kept, "still")
		_ = kept.Close()
		before.ends(t)
	}
	close(stop)
	agents.Wait()
	if n := l.end(); n != flows[0]+flows[1]+8 || n < 16 {
		t.Errorf("%d flows are recorded of %v", n, flows)
	}
	if n := l.book.refusals(); n != uint64(refused[0]+refused[1]) {
		t.Errorf("%d refusals are recorded of %v", n, refused)
	}
}

// A client of DNS over TCP that is connected is told to ask anew, and then asks the box
// that serves; a name that was asked of the one before has its address.
func TestClientOfDNSAsksTheOtherBox(t *testing.T) {
	a := &skepv1.Assignment{Cell: "cell", Policy: &skepv1.BoxPolicy{}}
	l := startLinked(t, a)
	server := netip.AddrPortFrom(name.Resolver4(), 53).String()
	before := lookup(t, l.exchange("tcp", server, "first.test", false))
	idle, err := l.dial(server)
	if err != nil {
		t.Fatal(err)
	}
	l.handOver(a).ends(t)
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client of before: %v", err)
	}
	if after := lookup(t, l.exchange("tcp", server, "first.test", false)); !after.IsValid() || after != before {
		t.Errorf("first.test is %s, and was %s", after, before)
	}
	if next := lookup(t, l.exchange("tcp", server, "second.test", false)); !next.IsValid() || next == before {
		t.Errorf("second.test is %s", next)
	}
	l.end()
}

// The old box keeps the cell when the new one does not get ready: it dies at once, it
// dies before it has read all, it never reads.
func TestBoxKeepsWhatNobodyTook(t *testing.T) {
	port := echoAt(t, public4+":0")
	l := startLinked(t, &skepv1.Assignment{Cell: "cell", Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{nameRule("ok.test", public4, port)}}})
	dst := netip.AddrPortFrom(l.resolve("ok.test", false), port).String()
	works := func(when string) {
		t.Helper()
		c, err := l.dial(dst)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		says(t, c, "hello")
		_ = c.Close()
		if l.resolve(strings.ReplaceAll(when, " ", "-")+".test", false) == (netip.Addr{}) {
			t.Errorf("%s: no name is answered", when)
		}
	}
	for when, take := range map[string]func(end *os.File){
		"it dies at once": func(end *os.File) { _ = end.Close() },
		"it dies on reading": func(end *os.File) {
			_, files, _ := sys.RecvFDs(end, make([]byte, maxLegacy), sys.MaxPassedFDs)
			sys.CloseAll(files)
			_ = end.Close()
		},
		"it reads nothing": func(*os.File) {},
	} {
		socket, end, err := sys.SeqpacketPair()
		if err != nil {
			t.Fatal(err)
		}
		go take(end)
		kept, err := l.dial(dst)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.link.HandOver(within(t, 10*time.Second), socket); err == nil {
			says(t, kept, "while nobody serves")
			if err := l.link.Keep(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		_ = socket.Close()
		works(when)
		_ = kept.Close()
		_ = end.Close()
	}
	if err := l.link.Part(within(t, 10*time.Second)); err == nil {
		t.Error("a box left its cell to nobody")
	}
	if err := l.link.Keep(within(t, 10*time.Second)); err == nil {
		t.Error("a box kept what it had not given")
	}
	works("at the end")
	l.end()
}

// bare is a box that has its sockets, and as many names as it may have.
func bare(s *sockets) *box {
	b := &box{sockets: s, kernel: newKernel(s.warden), early: &early{log: s.log}}
	b.server = &server{sockets: s, table: route.NewTable(route.DNSNames)}
	b.admission = newAdmission(b.kernel, func() policy.Policy { return policy.Policy{} }, flow.TCP, flow.UDP)
	return b
}

// A quarter of the names that a box may have, which the race detector makes as slow as
// all of them, each as long as one may be and with an opening of the early gate, are
// handed over in time.
func TestManyNamesAreHandedOver(t *testing.T) {
	world(t)
	c := newCellNet(t)
	s, _, err := receive(c.box)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.warden = c.box
	old, long := bare(s), strings.Repeat(strings.Repeat("x", 60)+".", 4)
	const many = route.DNSNames / 4
	for i := range many {
		host := fmt.Sprintf("%d.%stest", i, long[:230])
		for _, v6 := range []bool{false, true} {
			addr, _, err := old.server.table.Assign(host, v6)
			if err != nil {
				t.Fatal(err)
			}
			old.admission.inherit(host, span{transport: flow.TCP, first: addr, ports: right.PortRange{First: 1, Last: 65535}})
		}
	}
	socket, end, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() { left <- old.leave(socket) }()
	begin := time.Now()
	taken, message, err := receive(end)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.close()
	next := bare(taken)
	if err := next.inherit(end, message); err != nil {
		t.Fatal(err)
	}
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	t.Logf("handed over in %s", time.Since(begin))
	_ = socket.Close()
	if v4, v6 := next.server.table.Len(); v4 != many || v6 != many || len(next.admission.known) != 2*many {
		t.Errorf("%d and %d names, %d openings", v4, v6, len(next.admission.known))
	}
}

// TestForeignLegacyIsNotTaken is the attack: a box that was taken over leaves what no box
// has. The other one does not get ready, and says so.
func TestForeignLegacyIsNotTaken(t *testing.T) {
	text := func(field int, s string) (w writer) { w.message(field, []byte(s)); return w }
	var spanOfNobody writer
	spanOfNobody.message(legacySpan, span{first: netip.MustParseAddr("100.64.0.9")}.message())
	var foreign, name writer
	name.text(1, "x.test")
	name.message(2, netip.MustParseAddr("9.9.9.9").AsSlice())
	foreign.message(legacyName, name)
	for what, pages := range map[string][]writer{
		"nothing more":          nil,
		"no fields":             {writer("\xff\xff\xff")},
		"an unknown field":      {text(99, "x")},
		"a foreign address":     {foreign},
		"a span without name":   {spanOfNobody},
		"a message too long":    {make(writer, maxLegacy+1)},
		"a name of half a kind": {text(legacyName, "\x0a\x01")},
	} {
		t.Run(what, func(t *testing.T) {
			world(t)
			l := &linked{cellNet: newCellNet(t), book: &book{}}
			socket, end, err := sys.SeqpacketPair()
			if err != nil {
				t.Fatal(err)
			}
			// What a warden gave to the box that is hostile now.
			_, files, err := sys.RecvFDs(l.box, make([]byte, requestSize), sys.MaxPassedFDs)
			if err != nil {
				t.Fatal(err)
			}
			next, result := l.behind(end, &skepv1.Assignment{Cell: "cell", Policy: &skepv1.BoxPolicy{}})
			if err := sys.SendFDs(socket, writer{legacyNumber << 3, 1}, append(files, l.box)...); err != nil {
				t.Fatal(err)
			}
			sys.CloseAll(files)
			for _, p := range pages {
				if err := sys.SendFDs(socket, p); err != nil {
					t.Fatal(err)
				}
			}
			_ = socket.Close()
			if err := next.Ready(within(t, 10*time.Second)); err == nil {
				t.Error("it serves")
			}
			if err := <-result; err == nil {
				t.Error("it ended well")
			}
		})
	}
}
