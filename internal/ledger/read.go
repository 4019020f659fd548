package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/kind"
)

// Record is an entry as it was read back.
type Record struct {
	entry.Entry
	Hash     entry.Hash
	Position uint64 // in the journal
}

// Filter says which entries are wanted; the zero value wants all.
type Filter struct {
	Cell     string
	Kinds    []kind.Kind
	Since    time.Time     // not before
	Until    time.Time     // before
	Decision kind.Decision // of what was decided; others are left out
	After    uint64        // seq greater than this
}

// Wants reports whether the filter lets e through. An entry whose body cannot
// be decoded has no decision.
func (f *Filter) Wants(e *entry.Entry) bool {
	switch {
	case f.Cell != "" && e.Cell != f.Cell,
		len(f.Kinds) > 0 && !slices.Contains(f.Kinds, e.Kind),
		!f.Since.IsZero() && e.Time.Before(f.Since),
		!f.Until.IsZero() && !e.Time.Before(f.Until),
		e.Seq <= f.After:
		return false
	case f.Decision == "":
		return true
	}
	b, err := e.Decode()
	return err == nil && kind.DecisionOf(b) == f.Decision
}

// Read yields the entries of the ledger in dir that the filter wants, in the
// order of the journal. It needs no daemon and no key, and checks frames but not
// chains: that is [Verify]. A torn end is the end; damage before it is an error,
// the last thing yielded.
func Read(dir string, f Filter) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		_, err := read(dir, f, 0, math.MaxUint64, yield)
		if err != nil && !errors.Is(err, errStopped) {
			yield(Record{}, fmt.Errorf("read the ledger %s: %w", dir, err))
		}
	}
}

var errStopped = errors.New("reader stopped")

// read yields from position from on, and returns where it ended.
func read(dir string, f Filter, from, limit uint64, yield func(Record, error) bool) (uint64, error) {
	files, err := entry.Parts(dir)
	if err != nil || len(files) == 0 {
		return from, err
	}
	var mark []byte
	if f.Cell != "" {
		mark = []byte(`,"cell":"` + f.Cell + `","kind":"`)
	}
	end := from
	broken, _, err := entry.Walk(files, from, limit, func(pos uint64, payload []byte) error {
		end = pos + uint64(len(payload)) + entry.HeadSize
		if mark != nil && !bytes.Contains(payload, mark) {
			return nil // most entries are of other cells: do not parse them
		}
		e, err := entry.Parse(payload)
		if err != nil {
			return err
		}
		if !f.Wants(&e) {
			return nil
		}
		e.Body = bytes.Clone(e.Body)
		if !yield(Record{Entry: e, Hash: sha256.Sum256(payload), Position: pos}, nil) {
			return errStopped
		}
		return nil
	})
	if errors.Is(err, entry.ErrTorn) && broken >= files[len(files)-1].Base {
		err = nil
	}
	return end, err
}

// Follow yields as [Read] does, then waits for what is recorded from now on,
// as it becomes durable. It ends with ctx or with the ledger, whose error it
// yields if it broke.
func (l *Ledger) Follow(ctx context.Context, f Filter) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var at uint64
		for {
			l.mu.Lock()
			upTo, tick, closed, broken := l.synced, l.tick, l.closed, l.err
			l.mu.Unlock()
			if at < upTo {
				var err error
				if at, err = read(l.dir, f, at, upTo, yield); errors.Is(err, errStopped) {
					return
				} else if err != nil {
					yield(Record{}, fmt.Errorf("follow the ledger: %w", err))
					return
				}
			}
			if broken != nil {
				yield(Record{}, broken)
				return
			}
			if closed {
				return
			}
			select {
			case <-tick:
			case <-ctx.Done():
				return
			}
		}
	}
}
