package ledger

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/sys/durable"
)

// gatherFor bounds how long a sync waits for as many writers as the last one
// had: they were all woken by it, and are on their way back.
const gatherFor = 100 * time.Microsecond

// maxSpare is the largest buffer that is kept for the next group.
const maxSpare = 1 << 20

// group is a run of entries that are written by one call. Its waiters share
// one sync (D3a); one of them, the leader, makes it.
type group struct {
	start   uint64 // position of its first byte
	data    []byte
	size    int // entries
	waiting int
	undo    []undo
	err     error // set before wake is closed, or by a failed write
	written bool
	taken   bool          // by a sync, or failed
	wake    chan struct{} // who receives from it leads; closed once the group is durable or has failed
}

// undo is a chain as it was before a group moved it.
type undo struct {
	c *chain
	mark
}

// newGroup takes the buffers of one that is written.
func newGroup(data []byte, marks []undo) *group {
	return &group{data: data[:0], undo: marks[:0], wake: make(chan struct{}, 1)}
}

// await returns when g is durable. It is called with mu held, and releases it.
func (l *Ledger) await(ctx context.Context, g *group) error {
	l.wait(g, 1)
	lead := !l.lead
	l.lead = true
	l.mu.Unlock()
	for {
		if lead {
			l.commit()
		}
		if ctx.Done() == nil { // one channel is cheaper than two
			_, lead = <-g.wake
		} else {
			select {
			case _, lead = <-g.wake:
			case <-ctx.Done():
				return l.leave(ctx, g)
			}
		}
		if !lead {
			return g.err
		}
	}
}

// leave is for one who does not wait any longer for g.
func (l *Ledger) leave(ctx context.Context, g *group) error {
	l.mu.Lock()
	l.wait(g, -1)
	lead := false
	select {
	case _, lead = <-g.wake:
	default:
	}
	l.mu.Unlock()
	if lead {
		go l.commit() // somebody must: others wait for it
	}
	return ctx.Err()
}

// wait counts those who wait for g. It is called with mu held.
func (l *Ledger) wait(g *group, n int) {
	g.waiting += n
	if !g.taken {
		l.waiting.Add(int64(n))
	}
}

// take ends the counting of those who wait for g. It is called with mu held.
func (l *Ledger) take(g *group) {
	if !g.taken {
		l.waiting.Add(int64(-g.waiting))
		g.taken = true
	}
}

// finish wakes those who wait for g, and is called with mu held. One who had been
// told to lead still does.
func (l *Ledger) finish(g *group, err error) {
	if err != nil {
		g.err = err
	}
	l.take(g)
	close(g.wake)
}

// commit is the leader's work: gather, write, sync, wake, pass the lead on.
func (l *Ledger) commit() {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.gather()
	l.writing.Lock()
	_ = l.flushLocked(true) // its groups have the error
	l.mu.Lock()
	groups, pos, err := l.behind, l.written, l.err
	l.behind, l.inSync = nil, groups
	for _, g := range groups {
		l.take(g)
	}
	l.mu.Unlock()
	l.writing.Unlock()

	// After a failed sync there is no second one: the kernel may have dropped
	// the pages and would call them clean.
	if len(groups) > 0 && err == nil {
		err = l.file.Sync()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.inSync = 0, nil
	for _, g := range groups {
		l.last += g.waiting
		if err != nil {
			l.finish(g, l.breakLocked(fmt.Errorf("sync the journal: %w", err)))
		} else {
			l.finish(g, nil)
		}
	}
	if err == nil && pos > l.synced {
		l.synced = pos
		close(l.tick)
		l.tick = make(chan struct{})
	}
	l.passLead()
}

// passLead gives the lead to a waiter of what is not durable yet, or to the
// timer of entries for which nobody waits.
func (l *Ledger) passLead() {
	for _, g := range append(l.behind[:len(l.behind):len(l.behind)], l.cur) {
		if g.waiting > 0 && g.err == nil {
			g.wake <- struct{}{}
			return
		}
	}
	l.lead = false
	if len(l.behind) > 0 {
		l.syncLater()
	}
}

func (l *Ledger) syncLater() {
	if l.late {
		return
	}
	l.late = true
	l.opts.Clock.AfterFunc(l.opts.SyncWithin, func() {
		l.mu.Lock()
		l.late = false
		if l.lead || len(l.behind) == 0 {
			l.mu.Unlock()
			return
		}
		l.lead = true
		l.mu.Unlock()
		l.commit()
	})
}

// sync makes all that has been added durable.
func (l *Ledger) sync() error {
	l.mu.Lock()
	switch {
	case l.err != nil:
		defer l.mu.Unlock()
		return l.err
	case l.cur.size > 0:
		return l.await(context.Background(), l.cur)
	case len(l.behind) > 0:
		return l.await(context.Background(), l.behind[len(l.behind)-1])
	case len(l.inSync) > 0:
		g := l.inSync[len(l.inSync)-1]
		l.mu.Unlock()
		<-g.wake
		return g.err
	}
	l.mu.Unlock()
	return nil
}

// gather waits for those that the last sync woke, beside those that came during
// it: else writers would split into two halves that take turns.
func (l *Ledger) gather() {
	want := int64(l.last) + l.waiting.Load()
	if l.last == 0 || want < 3 {
		return // a lone writer waits for nobody
	}
	for begin := time.Now(); l.waiting.Load() < want && time.Since(begin) < gatherFor; {
		runtime.Gosched()
	}
}

// flush returns when g is written, which may be somebody else's work.
func (l *Ledger) flush(g *group) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	written, err := g.written, g.err
	l.mu.Unlock()
	if written || err != nil {
		return err
	}
	err = l.flushLocked(false)
	l.mu.Lock()
	if !l.lead {
		l.syncLater()
	}
	l.mu.Unlock()
	return err
}

// flushLocked writes the current group. It is called with writing held. Only
// the leader may rotate, since it is the one that syncs the file.
func (l *Ledger) flushLocked(leader bool) error {
	l.mu.Lock()
	g := l.cur
	if g.size == 0 {
		l.mu.Unlock()
		return nil
	}
	l.cur = newGroup(l.spare, l.marks)
	l.spare, l.marks = nil, nil
	l.cur.start = g.start + uint64(len(g.data))
	err := l.err
	l.mu.Unlock()

	if err == nil && leader {
		err = l.rotate()
	}
	if err == nil {
		_, err = l.file.WriteAt(g.data, int64(l.written-l.base))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return l.takeBack(g, fmt.Errorf("write the journal: %w", err))
	}
	l.written += uint64(len(g.data))
	if cap(g.data) < maxSpare {
		l.spare, l.marks = g.data, g.undo
	}
	g.data, g.undo, g.written = nil, nil, true
	l.behind = append(l.behind, g)
	return nil
}

// takeBack undoes a group that was not written and the one that was chained to
// it since: the chains, and whatever part of it reached the file. A full disk
// is survived, on the reserve; anything else ends the ledger.
func (l *Ledger) takeBack(g *group, cause error) error {
	next := l.cur
	for _, g := range []*group{next, g} {
		for _, u := range g.undo {
			u.c.mark, u.c.in = u.mark, nil
			if !u.c.isOpen() {
				u.c.stopTimer()
				delete(l.open, u.c)
			}
		}
	}
	l.cur = newGroup(nil, nil)
	l.cur.start = l.written
	l.undone++
	var err error
	terr := l.file.Truncate(int64(l.written - l.base))
	if terr != nil || !durable.IsNoSpace(cause) || errors.Is(cause, ErrBroken) {
		err = l.breakLocked(errors.Join(cause, terr))
	} else {
		err = l.useReserve(cause)
	}
	l.finish(g, err)
	l.finish(next, err)
	return err
}

// useReserve gives the last words their space. It is called with mu held.
func (l *Ledger) useReserve(cause error) error {
	l.full.is, l.full.probed = true, l.opts.Clock.Now()
	if err := l.opts.disk.remove(l.reservePath()); err != nil {
		return l.breakLocked(errors.Join(cause, err))
	}
	// Whoever fills the disk takes what is free: most of it becomes the journal's and the
	// seals' own at once. Where that is not possible, what is left has to do.
	for _, f := range []file{l.file, l.sealer.file} {
		if k, ok := f.(keeper); ok {
			_ = k.keep(l.opts.Reserve / 3)
		}
	}
	return fmt.Errorf("%w: %w", ErrFull, cause)
}

// breakLocked ends the ledger's life: what the disk holds is not known any more.
func (l *Ledger) breakLocked(cause error) error {
	if l.err == nil {
		l.err = fmt.Errorf("%w: %w", ErrBroken, cause)
		close(l.tick) // followers see that no more comes
		l.tick = make(chan struct{})
	}
	return l.err
}

func (l *Ledger) reservePath() string { return filepath.Join(l.dir, "reserve") }

func (l *Ledger) keepReserve() {
	if err := l.opts.disk.reserve(l.reservePath(), l.opts.Reserve); err != nil {
		l.full.is = true
	}
}

// rotate begins a new file where the current one is large enough. The old one
// is durable before the new one has a name, so only the last file can be torn.
func (l *Ledger) rotate() error {
	if l.written-l.base < l.opts.JournalBytes {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("sync the file that is full: %w", errors.Join(ErrBroken, err))
	}
	dir := filepath.Join(l.dir, "journal")
	name := filepath.Join(dir, entry.PartName(l.written))
	f, err := l.opts.disk.open(name)
	if err != nil {
		return err
	}
	if err := l.opts.disk.syncDir(dir); err != nil {
		return errors.Join(err, f.Close(), l.opts.disk.remove(name))
	}
	old := l.file
	l.mu.Lock()
	l.file, l.base = f, l.written
	l.mu.Unlock()
	return old.Close()
}
