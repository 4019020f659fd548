package daemon

import (
	"context"
	"path/filepath"
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
	w := measure.Watch{Cell: l.id, Ctx: d.ctx, After: l.after, End: l.end}
	w.Disk(l.disk, time.Second)
	meter, counts := d.Driver.(cell.Meter)
	if ms, bounded := l.profile.Budget.CPUTime.Value(); bounded && counts && !slices.Contains(l.unenforced, "cpu_time") {
		w.Time(meter, time.Duration(ms)*time.Millisecond, 0)
	}
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
