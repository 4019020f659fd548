package ledger

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/sys/durable"
)

// maxSeals is how many seals share one sync of the seals file.
const maxSeals = 32

// sealer cuts segments and signs them, in a goroutine of its own: no append
// ever waits for a signature (D5).
type sealer struct {
	l    *Ledger
	done chan struct{}

	mu       sync.Mutex
	wake     sync.Cond
	queue    []request
	stopping bool

	// The seals file; touched only by repair and then by run.
	file file
	size uint64
	seq  uint64     // of the last seal
	prev entry.Hash // its hash
}

type request struct {
	chains []*chain
	answer chan error // nil if nobody waits
}

func newSealer(l *Ledger) *sealer {
	s := &sealer{l: l, done: make(chan struct{})}
	s.wake.L = &s.mu
	return s
}

// ask is called with the ledger's mu held.
func (s *sealer) ask(c *chain) { s.put(request{chains: []*chain{c}}) }

func (s *sealer) askAged(c *chain, segment uint64) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if c.segment == segment && c.isOpen() {
		s.ask(c)
	}
}

func (s *sealer) put(r request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.queue = append(s.queue, r)
	s.wake.Signal()
	return true
}

// wait seals the open segments of these chains and says how that went.
func (s *sealer) wait(chains ...*chain) error {
	if len(chains) == 0 {
		return nil
	}
	r := request{chains: chains, answer: make(chan error, 1)}
	if !s.put(r) {
		return ErrClosed
	}
	return <-r.answer
}

func (s *sealer) run() {
	defer close(s.done)
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.stopping {
			s.wake.Wait()
		}
		queue := s.queue
		s.queue = nil
		stop := s.stopping && len(queue) == 0
		s.mu.Unlock()
		if stop {
			return
		}
		var chains []*chain
		for _, r := range queue {
			chains = append(chains, r.chains...)
		}
		err := s.sealAll(chains)
		for _, r := range queue {
			if r.answer != nil {
				r.answer <- err
			}
		}
	}
}

// stop ends the goroutine once it has answered what was asked.
func (s *sealer) stop() {
	s.mu.Lock()
	s.stopping = true
	s.wake.Signal()
	s.mu.Unlock()
	<-s.done
}

func (s *sealer) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

func (s *sealer) sealAll(chains []*chain) error {
	var err error
	for len(chains) > 0 {
		n := min(len(chains), maxSeals)
		e := s.sealSome(chains[:n])
		if errors.Is(e, ErrFull) {
			e = s.sealSome(chains[:n]) // on the reserve, which is free now
		}
		err = errors.Join(err, e)
		chains = chains[n:]
	}
	return err
}

// cut is a segment that has an end but no seal yet.
type cut struct {
	c        *chain
	agent    string
	segment  uint64
	first    uint64
	pos      uint64
	last     uint64
	hash     entry.Hash
	at       uint64
	unsealed uint64
	seal     entry.Hash // its own hash, once it is signed
}

// sealSome cuts, makes what was cut durable, signs, writes, syncs: a seal never
// covers an entry that a crash could take.
func (s *sealer) sealSome(chains []*chain) error {
	l := s.l
	l.mu.Lock()
	undone := l.undone
	var cuts []*cut
	for _, c := range chains {
		if c.isOpen() {
			cuts = append(cuts, l.cut(c))
		}
	}
	l.mu.Unlock()
	if len(cuts) == 0 {
		return nil
	}
	err := l.sync()
	l.mu.Lock()
	if err == nil && l.undone != undone {
		err = ErrFull // something that was cut may have been taken back
	}
	l.mu.Unlock()
	var data []byte
	if err == nil {
		data, err = s.sign(cuts)
	}
	if err == nil {
		err = s.write(data)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.uncut(cuts)
		return fmt.Errorf("seal %d segments: %w", len(cuts), err)
	}
	s.size += uint64(len(data))
	s.seq += uint64(len(cuts))
	for _, k := range cuts {
		s.prev, k.c.sealed = k.seal, k.seal
	}
	return nil
}

// cut ends the open segment of c. It is called with mu held.
func (l *Ledger) cut(c *chain) *cut {
	k := &cut{c: c, agent: c.agent, segment: c.segment, first: c.first, pos: c.pos, last: c.seq, hash: c.hash}
	k.at = l.cur.start + uint64(len(l.cur.data))
	c.stopTimer()
	c.first, c.segment, c.size, c.asked = c.seq+1, c.segment+1, 0, false
	delete(l.open, c)
	k.unsealed = k.at
	for o := range l.open {
		k.unsealed = min(k.unsealed, o.pos)
	}
	return k
}

// uncut joins segments that could not be sealed to what follows them.
func (l *Ledger) uncut(cuts []*cut) {
	for _, k := range cuts {
		c := k.c
		c.first, c.segment, c.pos = k.first, k.segment, k.pos
		c.stopTimer()
		if c.isOpen() {
			l.open[c] = struct{}{}
			c.stop = l.opts.Clock.AfterFunc(l.opts.SegmentAge, func() { l.sealer.askAged(c, k.segment) })
		}
	}
}

func (s *sealer) sign(cuts []*cut) ([]byte, error) {
	var data []byte
	seq, prev := s.seq, s.prev
	before := map[*chain]entry.Hash{}
	for _, k := range cuts {
		seq++
		b, ok := before[k.c]
		if !ok {
			b = k.c.sealed
		}
		raw, err := s.l.key.Sign(entry.Entry{Seq: seq, Prev: prev, Time: s.l.opts.Clock.Now().UTC(), Cell: k.c.cell, Agent: k.agent}, kind.Seal{
			Segment: k.segment, First: k.first, Last: k.last, Count: k.last - k.first + 1,
			Hash: k.hash.String(), Before: b.String(), At: k.at, Unsealed: k.unsealed,
		})
		if err != nil {
			return nil, err
		}
		k.seal = sha256.Sum256(raw)
		prev, before[k.c] = k.seal, k.seal
		at := len(data)
		data = append(append(data, make([]byte, entry.HeadSize)...), raw...)
		entry.PutHead(data[at:], raw)
	}
	return data, nil
}

func (s *sealer) write(data []byte) error {
	_, err := s.file.WriteAt(data, int64(s.size))
	l := s.l
	if err != nil {
		terr := s.file.Truncate(int64(s.size))
		l.mu.Lock()
		defer l.mu.Unlock()
		if terr == nil && durable.IsNoSpace(err) {
			return l.useReserve(err)
		}
		return l.breakLocked(fmt.Errorf("write the seals: %w", errors.Join(err, terr)))
	}
	if err := s.file.Sync(); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.breakLocked(fmt.Errorf("sync the seals: %w", err))
	}
	return nil
}

func (l *Ledger) sealsPath() string { return filepath.Join(l.dir, "seals") }
