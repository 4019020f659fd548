package daemon

import (
	"context"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/ending"
	"skep.dev/skep/internal/daemon/measure"
)

// limit begins to watch the budgets that no kernel mechanism holds, and the disk of all,
// of a cell that has run since then.
func (d *Daemon) limit(l *life, since time.Time) {
	if ms, bounded := l.profile.Budget.Wall.Value(); bounded {
		l.after("wall", max(0, time.Duration(ms)*time.Millisecond-d.Clock.Now().Sub(since)), func() {
			l.end(cells.Cause{Word: "budget", Budget: "wall", Limit: ms, Peak: int64(ending.Millis(d.Clock.Now().Sub(l.begin)))})
		})
	}
	d.watchDisk(l, time.Second)
	meter, counts := d.Driver.(cell.Meter)
	if ms, bounded := l.profile.Budget.CPUTime.Value(); bounded && counts && !slices.Contains(l.unenforced, "cpu_time") {
		d.watchTime(l, meter, time.Duration(ms)*time.Millisecond, 0)
	}
}

// watchTime asks for the processor time of a cell each second, and more often
// when all processors together could use up what is left before (L13).
func (d *Daemon) watchTime(l *life, meter cell.Meter, limit, used time.Duration) {
	const soonest = 50 * time.Millisecond
	wait := max(soonest, min(time.Second, (limit-used)/time.Duration(runtime.NumCPU())))
	l.after("cpu_time", wait, func() {
		ctx, cancel := context.WithTimeout(d.ctx, 5*time.Second)
		defer cancel()
		u, err := meter.Usage(ctx, l.id)
		switch {
		case err != nil: // what is not counted is not bounded
			l.end(cells.Cause{Word: "failed", Detail: "its processor time cannot be counted any more: " + err.Error()})
		case u.CPU >= limit:
			l.end(cells.Cause{Word: "budget", Budget: "cpu_time", Limit: limit.Milliseconds(), Peak: u.CPU.Milliseconds()})
		default:
			d.watchTime(l, meter, limit, u.CPU)
		}
	})
}

// watchDisk asks the filesystem each second, and has somebody look at what the cell holds
// where that does not settle it (L13a). However long that look takes, the asking goes on.
func (d *Daemon) watchDisk(l *life, wait time.Duration) {
	l.after("disk", wait, func() {
		over, look, next := l.disk.Glance()
		if over.Word == "" {
			d.watchDisk(l, next)
			if look {
				over = l.disk.Over(d.ctx)
			}
		}
		if over.Word != "" {
			l.end(over)
		}
	})
}

// gauge is that of a cell, which holds nothing yet where it is fresh.
func (d *Daemon) gauge(l *life, fresh bool) *measure.Gauge {
	limit, bounded := l.profile.Budget.Disk.Value()
	var kept []string
	if l.profile.Home != "" {
		kept = []string{filepath.Join(d.State, "homes", l.profile.Home)}
	}
	return measure.NewGauge(limit, bounded, d.State, fresh && kept == nil, d.Clock.Now,
		func(ctx context.Context) (int64, error) { return d.changes.Measure(ctx, l.id, kept...) }, l.cell)
}
