package daemon

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"skep.dev/skep/internal/daemon/cells"
)

// limit begins to watch the budgets that no kernel mechanism holds.
func (d *Daemon) limit(l *life) {
	if ms, bounded := l.profile.Budget.Wall.Value(); bounded {
		l.after(time.Duration(ms)*time.Millisecond, func() {
			l.end(cells.Cause{Word: "budget", Budget: "wall", Limit: ms, Peak: int64(millis(d.Clock.Now().Sub(l.begin)))})
		})
	}
	if limit, bounded := l.profile.Budget.Disk.Value(); bounded {
		d.watchDisk(l, limit, time.Second)
	}
}

// watchDisk measures the layer each second and, where that takes long, less
// often: at most a tenth of the time goes into it (L13a).
func (d *Daemon) watchDisk(l *life, limit int64, wait time.Duration) {
	l.after(wait, func() {
		begin := time.Now() // what the measuring costs, not what the cell is told
		used := diskUsage(filepath.Join(d.cells.Dir(l.id), "layer"))
		if used > limit {
			l.end(cells.Cause{Word: "budget", Budget: "disk", Limit: limit, Peak: used})
			return
		}
		d.watchDisk(l, limit, max(time.Second, 10*time.Since(begin)))
	})
}

// diskUsage adds the blocks of all files below dir. What the agent closed to us
// is not counted: it is the agent's own to fill, within the host's quota.
func diskUsage(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile, or closed to us
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += st.Blocks * 512
		}
		return nil
	})
	return bytes
}

// carried counts bytes over the boundary, and ends a cell that had enough.
func (l *life) carried(n uint64) {
	limit, bounded := l.profile.Budget.Net.Value()
	l.mu.Lock()
	l.netUsed += int64(min(n, 1<<50))
	used := l.netUsed
	l.mu.Unlock()
	if bounded && used > limit {
		l.end(cells.Cause{Word: "budget", Budget: "net", Limit: limit, Peak: used})
	}
}

// mostCounted bounds what the end of a cell spends on its summary.
const mostCounted = 10_000

// countChanged counts the files in a cell's layers, whiteouts included; -1 if
// there are too many, or some that we may not see.
func (d *Daemon) countChanged(id string) (n int64) {
	uppers, err := filepath.Glob(d.layerDir(id, "[0-9]*", "upper"))
	if err != nil {
		return -1
	}
	for _, upper := range uppers {
		err := filepath.WalkDir(upper, func(_ string, e fs.DirEntry, err error) error {
			if err != nil || n > mostCounted {
				return errNotCounted
			}
			if !e.IsDir() {
				n++
			}
			return nil
		})
		if err != nil {
			return -1
		}
	}
	return n
}

var errNotCounted = errors.New("not counted")
