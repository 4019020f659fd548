package route

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"skep.dev/skep/internal/name"
)

// AdmitTime is how long an answer waits for the kernel to take an address (B14).
const AdmitTime = 20 * time.Millisecond

const answerTTL = 3600 // seconds

// Admitter opens the kernel's early gate for a name's address, with the ports
// that policy allows the name, and returns when the kernel has it (B14). For a
// name that policy denies it has nothing to do.
type Admitter interface {
	Admit(ctx context.Context, host string, addr netip.Addr) error
	Withdraw(addr netip.Addr)
}

// Resolver answers the cell's DNS queries from a Table (B50 to B54). There is no
// forwarder.
type Resolver struct {
	Table *Table
	Gate  Admitter
	Rate  *Bucket
	IPv6  bool // false: AAAA answers are empty (B11)

	turn   sync.RWMutex
	counts [4]atomic.Uint64
}

// Answers is how many questions had an address, none of their kind, a refusal, a failure.
func (r *Resolver) Answers() (out [4]uint64) {
	for i := range out {
		out[i] = r.counts[i].Load()
	}
	return out
}

func (r *Resolver) count(addr netip.Addr, code dnsmessage.RCode) {
	kind := 2
	switch {
	case code == dnsmessage.RCodeSuccess && addr.IsValid():
		kind = 0
	case code == dnsmessage.RCodeSuccess:
		kind = 1
	case code == dnsmessage.RCodeServerFailure:
		kind = 3
	}
	r.counts[kind].Add(1)
}

// Pause returns when no answer is under way that the table or the gate could change by,
// and keeps others waiting until Go.
func (r *Resolver) Pause() { r.turn.Lock() }

// Go ends a Pause.
func (r *Resolver) Go() { r.turn.Unlock() }

// Answer is the reply to one query in wire format, or nil where none is due: to
// what is too short to have an id, and to a reply.
func (r *Resolver) Answer(ctx context.Context, query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	reply := dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, Authoritative: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}
	if h.OpCode != 0 {
		reply.RCode = dnsmessage.RCodeNotImplemented
		r.count(netip.Addr{}, reply.RCode)
		return pack(reply, nil, netip.Addr{})
	}
	questions, err := p.AllQuestions()
	if err != nil || len(questions) != 1 {
		reply.RCode = dnsmessage.RCodeFormatError
		r.count(netip.Addr{}, reply.RCode)
		return pack(reply, nil, netip.Addr{})
	}
	q := questions[0]
	if !r.Rate.Take() {
		reply.RCode = dnsmessage.RCodeServerFailure
		r.count(netip.Addr{}, reply.RCode)
		return pack(reply, &q, netip.Addr{})
	}
	var addr netip.Addr
	addr, reply.RCode = r.lookup(ctx, q)
	r.count(addr, reply.RCode)
	return pack(reply, &q, addr)
}

// lookup is the address for a question; an invalid one is an empty answer.
func (r *Resolver) lookup(ctx context.Context, q dnsmessage.Question) (netip.Addr, dnsmessage.RCode) {
	host, err := name.Host(q.Name.String())
	if err != nil {
		return netip.Addr{}, dnsmessage.RCodeNameError
	}
	v6 := q.Type == dnsmessage.TypeAAAA
	if q.Class != dnsmessage.ClassINET || q.Type != dnsmessage.TypeA && !v6 || v6 && !r.IPv6 || !v6 && !r.Table.IPv4() {
		return netip.Addr{}, dnsmessage.RCodeSuccess
	}
	if name.Loopback(host) {
		if v6 {
			return netip.IPv6Loopback(), dnsmessage.RCodeSuccess
		}
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), dnsmessage.RCodeSuccess
	}
	r.turn.RLock()
	defer r.turn.RUnlock()
	addr, evicted, err := r.Table.Assign(host, v6)
	if err != nil {
		return netip.Addr{}, dnsmessage.RCodeServerFailure
	}
	if evicted.IsValid() {
		r.Gate.Withdraw(evicted)
	}
	ctx, cancel := context.WithTimeout(ctx, AdmitTime)
	defer cancel()
	if r.Gate.Admit(ctx, host, addr) != nil {
		return netip.Addr{}, dnsmessage.RCodeServerFailure
	}
	return addr, dnsmessage.RCodeSuccess
}

// pack builds a reply with at most one record. A question that was parsed can
// be packed, so there is no error to report.
func pack(h dnsmessage.Header, q *dnsmessage.Question, addr netip.Addr) []byte {
	b := dnsmessage.NewBuilder(make([]byte, 0, 512), h)
	b.EnableCompression()
	if q != nil {
		if b.StartQuestions() != nil || b.Question(*q) != nil {
			return nil
		}
		if addr.IsValid() && !answer(&b, *q, addr) {
			return nil
		}
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}

func answer(b *dnsmessage.Builder, q dnsmessage.Question, addr netip.Addr) bool {
	if b.StartAnswers() != nil {
		return false
	}
	h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: answerTTL}
	if addr.Is4() {
		return b.AResource(h, dnsmessage.AResource{A: addr.As4()}) == nil
	}
	return b.AAAAResource(h, dnsmessage.AAAAResource{AAAA: addr.As16()}) == nil
}
