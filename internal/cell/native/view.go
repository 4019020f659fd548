package native

import (
	"context"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/sys"
)

// view is the files of one cell that show it its own size (L13b), held open: the
// cell sees them read-only.
type view struct {
	size
	files   map[string]*os.File
	last    map[string]string // what stands in them
	names   []string          // all of them
	counted bool              // the kernel counts for this cell
	at      time.Time         // of the last refresh
}

// newView makes the files in a directory of the daemon's; without one there are none.
func newView(dir *os.File, l cell.Limits, now time.Time) (_ *view, err error) {
	v := &view{size: size{limits: l, begin: now}, files: map[string]*os.File{}, last: map[string]string{}, at: now}
	defer func() {
		if err != nil {
			v.close()
		}
	}()
	if dir == nil {
		return v, nil
	}
	contents := v.size.files()
	if n := processors(l); n > 0 {
		if contents["cpuinfo"], err = cpuinfo(n); err != nil {
			return nil, err
		}
	}
	v.names = slices.Sorted(maps.Keys(contents))
	for _, name := range v.names {
		f, err := sys.OpenBeneath(dir, name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
		if err != nil {
			return nil, err
		}
		v.files[name] = f
		if _, err = f.WriteString(contents[name]); err != nil {
			return nil, err
		}
		v.last[name] = contents[name]
	}
	return v, nil
}

func (v *view) close() { sys.CloseAll(slices.Collect(maps.Values(v.files))) }

// refresh writes what has changed. A full disk leaves the older content.
func (v *view) refresh(now time.Time, u cell.Usage) {
	passed := now.Sub(v.at).Seconds()
	if passed <= 0 {
		return
	}
	busy := max(0, (u.CPU-v.usage.CPU).Seconds()/passed)
	for i, minutes := range []float64{1, 5, 15} {
		keep := math.Exp(-passed / (60 * minutes))
		v.load[i] = v.load[i]*keep + busy*(1-keep)
	}
	v.up, v.usage, v.at = now.Sub(v.begin), u, now
	for name, content := range v.size.files() {
		if v.files[name] == nil {
			return
		}
		if content == v.last[name] {
			continue
		}
		if _, err := v.files[name].WriteAt([]byte(content), 0); err != nil {
			continue
		}
		if len(content) < len(v.last[name]) {
			_ = v.files[name].Truncate(int64(len(content)))
		}
		v.last[name] = content
	}
}

// views refreshes those of all cells in rounds, one goroutine for all of them.
type views struct {
	mu   sync.Mutex
	open map[string]*view
	stop chan struct{} // ends the rounds; nil while there are none
}

// A round comes at most once a second, and takes at most a fiftieth of the time:
// with very many cells each sees older numbers, and the host pays no more.
const (
	roundEvery = time.Second
	roundShare = 50
)

// counter asks what the kernel has counted of a cell.
type counter func(ctx context.Context, id string) (cell.Usage, error)

// add has a cell's files refreshed until remove. The first starts the rounds.
func (s *views) add(id string, v *view, usage counter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]*view{}
	}
	s.open[id] = v
	if s.stop == nil {
		s.stop = make(chan struct{})
		go s.rounds(s.stop, usage)
	}
}

// remove closes the files of a cell that has ended. The last ends the rounds.
func (s *views) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.open[id]; v != nil {
		v.close()
		delete(s.open, id)
	}
	if len(s.open) == 0 && s.stop != nil {
		close(s.stop)
		s.stop = nil
	}
}

func (s *views) rounds(stop <-chan struct{}, usage counter) {
	timer := time.NewTimer(roundEvery)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		begin := time.Now()
		for id, counted := range s.all() {
			s.refresh(id, counted, usage)
		}
		timer.Reset(max(roundEvery, roundShare*time.Since(begin)))
	}
}

// all are the cells, and whether the kernel counts for each.
func (s *views) all() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make(map[string]bool, len(s.open))
	for id, v := range s.open {
		ids[id] = v.counted
	}
	return ids
}

// refresh asks outside of the lock. Where the worker is gone, time goes on alone.
func (s *views) refresh(id string, counted bool, usage counter) {
	ctx, cancel := context.WithTimeout(context.Background(), roundEvery)
	defer cancel()
	u, err := cell.Usage{}, error(nil)
	if counted {
		u, err = usage(ctx, id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.open[id]
	if v == nil {
		return // it ended meanwhile
	}
	if err != nil {
		u = v.usage
	}
	v.refresh(time.Now(), u)
}
