package measure

import (
	"context"
	"sync"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/sys"
)

// Gauge says what a cell holds on the disk. It looks closely, which takes a process
// and a walk, only when the cell may have passed its limit: what it held at the
// last look, and all that the filesystem has taken in since, whoever wrote it, are
// the most that it can hold. What others free meanwhile can hide growth, until the
// next look, which comes within a minute, or at its end.
type Gauge struct {
	limit int64                                    // bytes
	used  func() (int64, error)                    // bytes of the filesystem that are taken
	look  func(ctx context.Context) (int64, error) // bytes that the cell holds
	now   func() time.Time
	cell  func() cell.Running

	mu     sync.Mutex
	held   int64     // at the last look
	before int64     // what was taken then
	at     time.Time // zero: there was none
}

const (
	longest  = time.Minute // between two looks
	lookTime = time.Minute // for one

	// fastest is what a cell can write in a second, in bytes: one that ends before it can
	// have passed its limit is not looked at.
	fastest = 8 << 30
)

// NewGauge returns that of a cell which is to be built, with its layer below state.
// An empty one holds nothing yet. layer measures what has a name; the cell, once it
// runs, what has none.
func NewGauge(limit int64, state string, empty bool, now func() time.Time, layer func(context.Context) (int64, error), running func() cell.Running) *Gauge {
	g := &Gauge{limit: limit, now: now, cell: running}
	g.used = func() (int64, error) { return sys.FilesystemUsed(state) }
	g.look = func(ctx context.Context) (int64, error) {
		bytes, err := layer(ctx)
		keeper, ok := running().(cell.Keeper)
		if err != nil || !ok || g.ended() {
			return bytes, err
		}
		disk, err := sys.OpenPath(state)
		if err != nil {
			return 0, err
		}
		defer func() { _ = disk.Close() }()
		unseen, err := keeper.Unseen(ctx, disk)
		return bytes + unseen, err
	}
	if empty {
		g.begin()
	}
	return g
}

func (g *Gauge) begin() {
	if used, err := g.used(); err == nil {
		g.before, g.at = used, g.now()
	}
}

// ended tells whether the last process of the cell has gone.
func (g *Gauge) ended() bool {
	r := g.cell()
	if r == nil {
		return false
	}
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}

// Over is the cause of a cell that holds more than it may, or that may and at which
// nobody can look, else none. A cell without a budget has no gauge, nil.
func (g *Gauge) Over(ctx context.Context) cells.Cause {
	if g == nil {
		return cells.Cause{}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	held, err := g.read(ctx)
	switch {
	case err != nil && !g.ended(): // what is not measured is not bounded
		return cells.Cause{Word: "failed", Detail: "what it holds on the disk cannot be measured any more: " + err.Error()}
	case err == nil && held > g.limit:
		return cells.Cause{Word: "budget", Budget: "disk", Limit: g.limit, Peak: held}
	}
	return cells.Cause{}
}

// read is what the cell holds, or the most that it can while that is within the
// limit. An error says that it may hold more, and that nobody could look.
func (g *Gauge) read(ctx context.Context) (bytes int64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	used, err := g.used()
	most, known := g.held+max(0, used-g.before), err == nil && !g.at.IsZero()
	age := longest
	if g.ended() { // there is no next look
		age = time.Duration(float64(g.limit-g.held) / fastest * float64(time.Second))
	}
	if known && most <= g.limit && g.now().Sub(g.at) < age {
		return most, nil
	}
	held, lookErr := g.look(ctx)
	switch {
	case lookErr == nil:
		g.held, g.before, g.at = held, used, g.now()
		if err != nil {
			g.at = time.Time{}
		}
		return held, nil
	case known && most <= g.limit:
		return most, nil
	}
	return 0, lookErr
}
