package measure

import (
	"context"
	"fmt"
	"math"
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
//
// An agent can make a look slow. So the filesystem is asked meanwhile, too, and a cell
// that may have passed its limit while nobody can say so is over it.
type Gauge struct {
	limit int64                                    // bytes; noLimit: only the floor counts
	state string                                   // a path in the filesystem
	disk  func() (sys.Filesystem, error)           // how full it is
	look  func(ctx context.Context) (int64, error) // bytes that the cell holds
	now   func() time.Time
	cell  func() cell.Running

	seeing sync.Mutex // around a look; taken before mu

	mu      sync.Mutex
	held    int64     // at the last look
	before  int64     // what was taken then
	at      time.Time // zero: there was none
	rest    time.Time // no look before, but at the end
	looking bool
}

// noLimit is that of a cell without a budget of the disk.
const noLimit = math.MaxInt64

const (
	usual    = time.Second            // between two glances
	hurried  = 100 * time.Millisecond // where the filesystem is nearly full
	longest  = time.Minute            // between two looks
	lookTime = time.Minute            // for one

	// fastest is what a cell can write in a second, in bytes: one that ends before it can
	// have passed its limit is not looked at.
	fastest = 8 << 30

	// The floor is what is left of a filesystem for Skep and the host: bytes, or this part
	// of a small one, and a part of the inodes.
	floorBytes, floorPart, inodePart = 64 << 20, 16, 100
)

// NewGauge returns that of a cell which is to be built, with its layer below state.
// Without a limit only the filesystem's floor bounds it. An empty one holds nothing yet.
// layer measures what has a name; the cell, once it runs, what has none.
func NewGauge(limit int64, bounded bool, state string, empty bool, now func() time.Time, layer func(context.Context) (int64, error), running func() cell.Running) *Gauge {
	if !bounded {
		limit = noLimit
	}
	g := &Gauge{limit: limit, state: state, now: now, cell: running}
	g.disk = func() (sys.Filesystem, error) { return sys.FilesystemOf(state) }
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
	g.begin(empty)
	return g
}

func (g *Gauge) begin(empty bool) {
	fs, err := g.disk()
	if err != nil {
		return
	}
	g.before = fs.Used()
	if empty {
		g.at = g.now()
	}
}

// ended tells whether the last process of the cell has gone.
func (g *Gauge) ended() bool {
	r := g.cell()
	return r != nil && cell.Ended(r)
}

// low tells whether a filesystem has so many times less than its floor left.
func low(fs sys.Filesystem, times int64) bool {
	return fs.FreeBytes < times*floorOf(fs) || fs.Inodes > 0 && fs.FreeInodes < times*(fs.Inodes/inodePart)
}

func floorOf(fs sys.Filesystem) int64 { return min(floorBytes, fs.Bytes/floorPart) }

// most is the most that the cell can hold, known whether it was ever looked at.
func (g *Gauge) most(fs sys.Filesystem) (bytes int64, known bool) {
	return g.held + max(0, fs.Used()-g.before), !g.at.IsZero()
}

// due tells whether somebody must look closely.
func (g *Gauge) due(fs sys.Filesystem, ended bool) bool {
	most, known := g.most(fs)
	switch {
	case most > g.limit, !ended && low(fs, 1) && most > floorOf(fs):
		return true
	case g.limit == noLimit:
		return false
	case !known:
		return true
	}
	age := longest
	if ended { // there is no next look
		age = time.Duration(float64(g.limit-g.held) / fastest * float64(time.Second))
	}
	return g.now().Sub(g.at) >= age
}

// Glance asks the filesystem, which costs nothing. It returns the cause of a cell that
// has passed its limit, or may have while nobody can tell; whether [Gauge.Over] is to
// look closely now; and when to glance again.
func (g *Gauge) Glance() (over cells.Cause, look bool, next time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fs, err := g.disk()
	busy := g.looking || g.now().Before(g.rest)
	if err != nil {
		g.looking = g.looking || !busy
		return cells.Cause{}, !busy, usual
	}
	next = usual
	if low(fs, 8) {
		next = hurried
	}
	most, _ := g.most(fs)
	switch {
	case low(fs, 1) && g.held > floorOf(fs):
		return g.full(fs), false, next
	case busy && most > g.limit && most-g.limit > g.limit/16:
		return g.passed(most, "it cannot be counted as fast as the disk fills"), false, next
	case busy || !g.due(fs, false):
		return cells.Cause{}, false, next
	}
	g.looking = true
	return cells.Cause{}, true, next
}

func (g *Gauge) passed(bytes int64, why string) cells.Cause {
	return cells.Cause{Word: "budget", Budget: "disk", Limit: g.limit, Peak: bytes, Detail: why}
}

// full is the cause of a cell that fills the filesystem, within its limit.
func (g *Gauge) full(fs sys.Filesystem) cells.Cause {
	c := g.passed(g.held, fmt.Sprintf("the filesystem of %s is nearly full: %d MiB and %d inodes are left; `skep drop` frees what the cell wrote",
		g.state, fs.FreeBytes>>20, fs.FreeInodes))
	if g.limit == noLimit {
		c.Limit = g.held
	}
	return c
}

// Over is the cause of a cell that holds more than it may, or that may and at which
// nobody can look, else none. It looks closely if it must.
func (g *Gauge) Over(ctx context.Context) cells.Cause {
	if g == nil {
		return cells.Cause{}
	}
	g.seeing.Lock()
	defer g.seeing.Unlock()
	ended := g.ended()
	fs, err := g.disk()
	g.mu.Lock()
	due := err != nil || g.due(fs, ended)
	g.looking = due
	g.mu.Unlock()
	if !due {
		return cells.Cause{}
	}
	within, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	begin := time.Now() // what the looking costs, not what the cell is told
	held, lookErr := g.look(within)
	late := lookErr != nil && ctx.Err() == nil && within.Err() != nil
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looking = false
	g.rest = g.now().Add(10 * time.Since(begin)) // at most a tenth of the time goes into it
	return g.judge(fs, err, held, lookErr, late)
}

// judge takes what a look has found.
func (g *Gauge) judge(fs sys.Filesystem, fsErr error, held int64, lookErr error, late bool) cells.Cause {
	most, known := g.most(fs)
	switch {
	case lookErr == nil:
		g.held, g.before, g.at = held, fs.Used(), g.now()
		if fsErr != nil {
			g.at = time.Time{}
		}
		if held > g.limit {
			return g.passed(held, "")
		}
		if fsErr == nil && !g.ended() && low(fs, 1) && held > floorOf(fs) {
			return g.full(fs)
		}
	case g.limit == noLimit:
	case late && !g.ended():
		return g.passed(most, fmt.Sprintf("what it holds could not be counted within %v", lookTime))
	case fsErr == nil && known && most <= g.limit || g.ended():
	default: // what is not measured is not bounded
		return cells.Cause{Word: "failed", Detail: "what it holds on the disk cannot be measured any more: " + lookErr.Error()}
	}
	return cells.Cause{}
}
