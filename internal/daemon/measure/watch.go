package measure

import (
	"context"
	"runtime"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
)

// Watch looks at what a cell uses, of what no kernel mechanism holds.
type Watch struct {
	Cell string
	Ctx  context.Context //nolint:containedctx // the daemon's life, not a request's
	// After does something later, unless the cell has ended before; one of each purpose.
	After func(what string, d time.Duration, f func())
	// End ends the cell.
	End func(cells.Cause)
}

// Time asks for the processor time of a cell each second, and more often
// when all processors together could use up what is left before (L13).
func (w Watch) Time(meter cell.Meter, limit, used time.Duration) {
	const soonest = 50 * time.Millisecond
	wait := max(soonest, min(time.Second, (limit-used)/time.Duration(runtime.NumCPU())))
	w.After("cpu_time", wait, func() {
		ctx, cancel := context.WithTimeout(w.Ctx, 5*time.Second)
		defer cancel()
		u, err := meter.Usage(ctx, w.Cell)
		switch {
		case err != nil: // what is not counted is not bounded
			w.End(cells.Cause{Word: "failed", Detail: "its processor time cannot be counted any more: " + err.Error()})
		case u.CPU >= limit:
			w.End(cells.Cause{Word: "budget", Budget: "cpu_time", Limit: limit.Milliseconds(), Peak: u.CPU.Milliseconds()})
		default:
			w.Time(meter, limit, u.CPU)
		}
	})
}

// Disk asks the filesystem each second, and has somebody look at what the cell holds
// where that does not settle it (L13a). However long that look takes, the asking goes on.
func (w Watch) Disk(g *Gauge, wait time.Duration) {
	w.After("disk", wait, func() {
		over, look, next := g.Glance()
		if over.Word == "" {
			w.Disk(g, next)
			if look {
				over = g.Over(w.Ctx)
			}
		}
		if over.Word != "" {
			w.End(over)
		}
	})
}
