package ledger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/kind"
)

// usualBody is room for the body of most entries, largeBody what is not kept, in bytes.
const (
	usualBody = 768
	largeBody = 64 << 10
)

// noHead is room for a frame's head.
const noHead = "\x00\x00\x00\x00\x00\x00\x00\x00"

// Entry is what a caller records: the ledger adds sequence, time and hashes.
type Entry struct {
	Cell  string
	Agent string // "" for a cell without a bundle
	Body  kind.Body
}

// Append records an entry and returns its sequence number in the cell's chain.
// It returns when the entry is durable or, for exec and call.denied, written.
// On any error the entry is not acknowledged: the caller denies what it was
// about to do. If ctx ends first the entry may still be recorded.
// Errors: ErrClosed, ErrFull, ErrBroken, that of ctx.
func (l *Ledger) Append(ctx context.Context, e Entry) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	buf := l.body()
	defer l.keep(buf)
	raw, err := encode(buf, e)
	if err != nil {
		return 0, err
	}
	seq, err := l.append(ctx, &raw)
	if errors.Is(err, ErrFull) && kind.LastWord(raw.Kind) {
		// It was in the batch that found the disk full; the reserve is free now.
		seq, err = l.append(ctx, &raw)
	}
	if err != nil {
		return 0, failed(&raw, err)
	}
	return seq, nil
}

// AppendAll records entries in their order and returns when all are durable, by
// one sync. After an error none of them may be relied on; what could be recorded
// of them is, as if each had been appended alone.
func (l *Ledger) AppendAll(ctx context.Context, entries []Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	buf := l.body()
	defer l.keep(buf)
	all := make([]entry.Entry, 0, len(entries))
	var first error
	for _, e := range entries {
		raw, err := encode(buf, e)
		if err == nil {
			all = append(all, raw)
		} else if first == nil {
			first = err
		}
	}
	l.mu.Lock()
	var g *group // the same for all, since mu is held
	for i := range all {
		added, err := l.add(&all[i])
		if err == nil {
			g = added
		} else if first == nil {
			first = failed(&all[i], err)
		}
	}
	if g == nil {
		l.mu.Unlock()
		return first
	}
	err := l.await(ctx, g)
	if errors.Is(err, ErrFull) {
		for i := range all { // as in Append
			if kind.LastWord(all[i].Kind) {
				_, _ = l.append(ctx, &all[i]) // the caller has an error either way
			}
		}
	}
	if first == nil && err != nil {
		first = failed(&all[0], err)
	}
	return first
}

func failed(e *entry.Entry, err error) error {
	return fmt.Errorf("record a %s of cell %s: %w", e.Kind, e.Cell, err)
}

// body is an empty buffer for bodies; whoever took it gives it to keep.
func (l *Ledger) body() *[]byte {
	if b, ok := l.bodies.Get().(*[]byte); ok {
		*b = (*b)[:0]
		return b
	}
	b := make([]byte, 0, usualBody)
	return &b
}

func (l *Ledger) keep(buf *[]byte) {
	if cap(*buf) <= largeBody {
		l.bodies.Put(buf)
	}
}

// encode appends the body to buf; the entry's is that part of it.
func encode(buf *[]byte, e Entry) (entry.Entry, error) {
	if e.Body == nil {
		return entry.Entry{}, fmt.Errorf("record an entry of cell %s: it has no body", e.Cell)
	}
	raw := entry.Entry{Cell: e.Cell, Agent: e.Agent, Kind: e.Body.Kind()}
	if raw.Kind == kind.KindSeal {
		return raw, errors.New("record a seal: only the ledger seals")
	}
	start := len(*buf)
	b, err := kind.Append(*buf, e.Body)
	if err != nil {
		return raw, failed(&raw, err)
	}
	*buf = b
	raw.Body = b[start:len(b):len(b)]
	return raw, nil
}

func (l *Ledger) append(ctx context.Context, e *entry.Entry) (uint64, error) {
	l.mu.Lock()
	g, err := l.add(e)
	if err != nil {
		l.mu.Unlock()
		return 0, err
	}
	if !kind.Durable(e.Kind) {
		l.mu.Unlock()
		return e.Seq, l.flush(g)
	}
	return e.Seq, l.await(ctx, g)
}

// add chains e and puts its frame into the current group. It is called with mu
// held, so the order in a chain is the order in the journal.
func (l *Ledger) add(e *entry.Entry) (*group, error) {
	if err := l.mayAdd(e); err != nil {
		return nil, err
	}
	g := l.cur
	c := l.chains[e.Cell]
	if c == nil {
		c = &chain{cell: e.Cell, segment: 1, first: 1, mark: mark{hash: entry.Genesis(e.Cell)}}
	}
	e.Seq, e.Prev = c.seq+1, c.hash
	e.Time = l.opts.Clock.Now().UTC()
	start := len(g.data)
	data, err := entry.Append(append(g.data, noHead...), e)
	if err != nil {
		return nil, err
	}
	payload := data[start+entry.HeadSize:]
	if len(payload) > entry.MaxSize {
		return nil, fmt.Errorf("%d bytes, and an entry has at most %d", len(payload), entry.MaxSize)
	}
	entry.PutHead(data[start:], payload)
	g.data = data
	if c.in != g {
		g.undo, c.in = append(g.undo, undo{c, c.mark}), g
	}
	l.chains[e.Cell] = c
	l.moveChain(c, e, payload, g.start+uint64(start))
	g.size++
	return g, nil
}

func (l *Ledger) moveChain(c *chain, e *entry.Entry, payload []byte, pos uint64) {
	c.seq, c.hash = e.Seq, sha256.Sum256(payload)
	if c.seq == c.first {
		c.pos, c.size, c.asked = pos, 0, false
		l.open[c] = struct{}{}
		segment := c.segment
		c.stopTimer()
		c.stop = l.opts.Clock.AfterFunc(l.opts.SegmentAge, func() { l.sealer.askAged(c, segment) })
	}
	c.agent = e.Agent
	c.size += uint64(len(payload) + entry.HeadSize)
	if c.size >= l.opts.SegmentBytes && !c.asked {
		c.asked = true
		l.sealer.ask(c)
	}
}

// mayAdd is the first half of D4; the second is in the flush.
func (l *Ledger) mayAdd(e *entry.Entry) error {
	switch {
	case l.err != nil:
		return l.err
	case l.closed:
		return ErrClosed
	case !l.full.is:
		return nil
	case l.full.admits(e.Kind, len(e.Body), l.opts.Reserve):
		return nil
	case l.full.mayProbe(l.opts.Clock.Now()) && l.opts.disk.reserve(l.reservePath(), l.opts.Reserve) == nil:
		l.full = fullness{}
		return nil
	}
	return ErrFull
}

// fullness is the state of a ledger whose disk was full.
type fullness struct {
	is      bool
	denials int64 // bytes of denials that the reserve has taken
	probed  time.Time
}

// admits leaves half of the reserve to stops and seals, however often an agent
// tries what is denied.
func (f *fullness) admits(k kind.Kind, size int, reserve int64) bool {
	if !kind.LastWord(k) {
		return false
	}
	if k == kind.KindFlowDenied {
		if f.denials += int64(size) + 512; f.denials > reserve/2 {
			return false
		}
	}
	return true
}

func (f *fullness) mayProbe(now time.Time) bool {
	if now.Sub(f.probed) < time.Second {
		return false
	}
	f.probed = now
	return true
}
