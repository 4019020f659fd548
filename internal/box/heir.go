package box

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/sys"
)

// A box is replaced under its running cell by another one (L20a): skepd gives the old
// box, as HandOver, the end of a seqpacket socket that a warden has of a new one, and the
// old box plays the warden's part. It stops reading, and sends its sockets and the
// warden's in one message; messages of whole fields follow, and a last one. Until skepd
// says Part it keeps duplicates of all, so that it can go on.
//
// The fields, as of Protocol Buffers; the box that reads them trusts no more of them than
// its cell could do to it:
const (
	legacyNumber  = 1 // number of the next request to the warden
	legacyRefused = 2 // refusals that are accounted for
	legacyNext4   = 3 // offset of the next address
	legacyNext6   = 4
	legacyName    = 5 // {1 host, 2 address}, the least recently used first
	legacySpan    = 6 // {1 address, 2 last address, 3 first port, 4 last port, 5 of UDP, 6 set, 7 token}: what the early gate lets pass, for a name
	legacyRule    = 7 // likewise, for a rule
	legacyEnd     = 8
	legacyDenial  = 10 // what the cell is shown, the oldest first (leftdenial.go)
	legacySecret  = 9  // of a cell that has secrets: its authority, and each value
)

const (
	maxLegacy = 32 << 10        // bytes of one message
	handBy    = 5 * time.Second // until the next message; skepd waits for the last one
	maxSpans  = 4 * route.DNSNames
)

var (
	errNoHeir  = errors.New("no other box was to be served by")
	errForeign = errors.New("what no early gate would let pass")
)

// handOver stops serving and sends heir, which it owns, all that the other box needs.
// After an error this one goes on as before.
func (b *box) handOver(ctx context.Context, heir *os.File) (err error) {
	defer func() { _ = heir.Close() }()
	ctx, cancel := context.WithTimeout(ctx, handBy)
	defer cancel()
	if err := b.cell.Stop(ctx); err != nil {
		return err
	}
	b.server.dns.Pause()
	b.early.counting.Lock()
	b.admission.swap.Lock()
	b.handing = true
	defer func() {
		if err != nil {
			err = errors.Join(err, b.keep(context.WithoutCancel(ctx)))
		}
	}()
	if err := b.door.leave(ctx); err != nil {
		return err
	}
	if err := b.kernel.hold(ctx); err != nil {
		return err
	}
	if err := b.answers.Stop(ctx); err != nil {
		return err
	}
	return b.leave(heir)
}

// keep goes on as before handOver.
func (b *box) keep(ctx context.Context) error {
	if !b.handing {
		return errNoHeir
	}
	b.handing = false
	b.answers.Go()
	b.kernel.release()
	err := b.door.back(ctx)
	b.admission.swap.Unlock()
	b.early.counting.Unlock()
	b.server.dns.Go()
	b.cell.Go()
	return err
}

// part leaves the cell to the other box: what is open here ends here, and then the box.
func (b *box) part() error {
	if !b.handing {
		return errNoHeir
	}
	b.handing = false
	b.kernel.end(nil)
	b.answers.End()
	b.kernel.release()
	b.admission.swap.Unlock()
	b.early.counting.Unlock()
	b.cell.End()
	b.server.dns.Go()
	b.sockets.part()
	_ = b.kernel.sock.Close()
	return nil
}

// leave sends the sockets, and what is known about the cell.
func (b *box) leave(heir *os.File) error {
	files := []*os.File{b.kernel.sock, b.early.log}
	var own []*os.File
	defer func() { sys.CloseAll(own) }()
	for _, s := range b.sockets.all() {
		f, err := s.File()
		if err != nil {
			return fmt.Errorf("hand over a socket: %w", err)
		}
		own = append(own, f)
	}
	names, next := b.server.table.Leave()
	b.early.mu.Lock()
	refused := b.early.tally.Total()
	b.early.mu.Unlock()
	b.kernel.mu.Lock()
	number := b.kernel.next
	b.kernel.mu.Unlock()
	var m writer
	m.number(legacyNumber, uint64(number))
	m.number(legacyRefused, refused)
	m.number(legacyNext4, next.V4)
	m.number(legacyNext6, next.V6)
	err := heir.SetWriteDeadline(time.Now().Add(handBy))
	if err == nil {
		err = sys.SendFDs(heir, m, append(files, own...)...)
	}
	if err != nil {
		return fmt.Errorf("hand over the sockets: %w", err)
	}
	out := pages{to: heir}
	for _, n := range names {
		var e writer
		e.text(1, n.Host)
		e.message(2, n.Addr.AsSlice())
		out.add(legacyName, e)
	}
	literals, named := b.admission.leave()
	for _, s := range named {
		out.add(legacySpan, s.message())
	}
	for _, s := range literals {
		out.add(legacyRule, s.message())
	}
	if err := b.secrets.Leave(out.secret); err != nil {
		return err
	}
	for _, d := range b.denials.List() {
		out.add(legacyDenial, leftDenial(d))
	}
	var end writer
	end.number(1, 1)
	out.add(legacyEnd, end)
	return out.flush()
}

// pages sends fields in messages that are not too long.
type pages struct {
	to  *os.File
	now writer
	err error
}

func (p *pages) add(field int, e writer) {
	if len(p.now)+len(e)+16 > maxLegacy {
		p.err = p.flush()
	}
	p.now.message(field, e)
}

// secret sends one in a message of its own, of which no copy is left.
func (p *pages) secret(one []byte) error {
	m := make(writer, 0, len(one)+16)
	m.message(legacySecret, one)
	defer clear(m)
	if err := p.flush(); err != nil {
		return err
	}
	return sys.SendFDs(p.to, m)
}

func (p *pages) flush() error {
	if p.err == nil {
		p.err = p.to.SetWriteDeadline(time.Now().Add(handBy))
	}
	if p.err == nil && len(p.now) > 0 {
		p.err = sys.SendFDs(p.to, p.now)
	}
	p.now = nil
	if p.err != nil {
		return fmt.Errorf("hand over what is known of the cell: %w", p.err)
	}
	return nil
}

// inherit takes what the box before leaves, of which message is the beginning. It closes
// the socket.
func (b *box) inherit(from *os.File, message []byte) error {
	defer func() { _ = from.Close() }()
	var next route.Offsets
	r := reader{}
	r.fields(message, func(f field) {
		switch f.number {
		case legacyNumber:
			b.kernel.next = uint32(r.number(f, 1<<32-1))
		case legacyRefused:
			b.early.tally.Inherit(r.number(f, 1<<63))
		case legacyNext4:
			next.V4 = r.number(f, 1<<22)
		case legacyNext6:
			next.V6 = r.number(f, 1<<64-1)
		default:
			r.unknown("what a box leaves", f)
		}
	})
	b.early.asks = asksAfterLog // what came meanwhile is in the counter
	b.server.table.Inherit(next)
	var denials []boundary.Denial
	buf := make([]byte, maxLegacy)
	defer clear(buf)
	for end := false; !end && r.err == nil; {
		n := 0
		err := from.SetReadDeadline(time.Now().Add(handBy))
		if err == nil {
			n, _, err = sys.RecvFDs(from, buf, 0)
		}
		if err == nil && n == 0 {
			err = errors.New("it ended before it had told all")
		}
		if err != nil {
			return fmt.Errorf("take over from another box: %w", err)
		}
		r.fields(buf[:n], func(f field) {
			switch f.number {
			case legacyName:
				n := r.leftName(r.message(f))
				if r.err == nil {
					r.fail(b.server.table.Add(n))
				}
			case legacySpan, legacyRule:
				b.inheritSpan(&r, f)
			case legacySecret:
				r.fail(b.secrets.Inherit(r.message(f)))
			case legacyDenial:
				if denials = append(denials, r.leftDenial(r.message(f))); len(denials) > boundary.KeptDenials {
					r.fail(errForeign)
				}
			case legacyEnd:
				end = r.message(f) != nil
			default:
				r.unknown("what a box leaves", f)
			}
		})
	}
	if r.err != nil {
		return fmt.Errorf("take over from another box: %w", r.err)
	}
	b.denials.Inherit(denials)
	return nil
}

func (r *reader) leftName(b []byte) route.Name {
	n := route.Name{}
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			n.Host = r.text(f)
		case 2:
			n.Addr = r.bytesAddr(f)
		default:
			r.unknown("a name that a box leaves", f)
		}
	})
	return n
}

func (r *reader) bytesAddr(f field) netip.Addr {
	a, ok := netip.AddrFromSlice(r.message(f))
	if !ok {
		r.fail(errWire)
	}
	return a
}

func (b *box) inheritSpan(r *reader, f field) {
	s := r.leftSpan(r.message(f))
	host, named := b.server.table.Name(s.first)
	if named != (f.number == legacySpan) || len(b.admission.addresses)+len(b.admission.known) > maxSpans {
		r.fail(errForeign)
	}
	if r.err == nil {
		b.admission.inherit(host, s)
	}
}

func (s span) message() (m writer) {
	m.message(1, s.first.AsSlice())
	if s.last.IsValid() {
		m.message(2, s.last.AsSlice())
	}
	m.number(3, uint64(s.ports.First))
	m.number(4, uint64(s.ports.Last))
	if s.transport == flow.UDP {
		m.number(5, 1)
	}
	m.number(6, uint64(s.in))
	m.number(7, uint64(s.token))
	return m
}

func (r *reader) leftSpan(b []byte) span {
	s := span{transport: flow.TCP}
	r.fields(b, func(f field) {
		switch f.number {
		case 1:
			s.first = r.bytesAddr(f)
		case 2:
			s.last = r.bytesAddr(f)
		case 3:
			s.ports.First = uint16(r.number(f, math.MaxUint16))
		case 4:
			s.ports.Last = uint16(r.number(f, math.MaxUint16))
		case 5:
			if r.flag(f) {
				s.transport = flow.UDP
			}
		case 6:
			s.in = set(r.number(f, uint64(tokenSet)))
		case 7:
			s.token = uint32(r.number(f, math.MaxUint32))
		default:
			r.unknown("what the early gate lets pass", f)
		}
	})
	return s
}

// all are the sockets that the cell's processes reach.
func (s *sockets) all() (list []interface{ File() (*os.File, error) }) {
	for _, l := range append(append([]*net.TCPListener(nil), s.tcp...), s.dnsTCP...) {
		list = append(list, l)
	}
	for _, c := range slices.Concat(s.udp, s.dnsUDP) {
		list = append(list, c)
	}
	return list
}

// doorway is the kernel's door, which another box finds open, as a new cell's is.
type doorway struct {
	kernel *kernel

	mu   sync.Mutex
	shut bool
}

func (d *doorway) set(ctx context.Context, shut bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.kernel.shut(ctx, shut); err != nil && !errors.Is(err, ErrWardenGone) {
		return err
	}
	d.shut = shut // behind the one who has the cell now it makes no difference
	return nil
}

// leave opens the door, and lets nobody shut it before back.
func (d *doorway) leave(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut {
		return nil
	}
	return d.kernel.shut(ctx, false)
}

// back makes the door again what it was before leave.
func (d *doorway) back(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, doorBy)
	defer cancel()
	return d.kernel.shut(ctx, true)
}
