package crash

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestManyCellsLeaveNothing runs a hundred short cells: what there was before is there
// afterwards, and no more, but records (F14).
func TestManyCellsLeaveNothing(t *testing.T) {
	r := set(t)
	r.short(30)                                 // the first ones fill caches and pools
	r.await("what is kept ready", func() bool { // once more than one of them is gone, too
		all := r.processes()
		return len(all.of(spareBox)) == 1 && len(all.of(halfPID1)) == 1 && len(all.of(liveBox)) == 0
	})
	before := r.weigh()
	r.short(100)
	var after weight
	if !r.await("everything to be as it was", func() bool {
		after = r.weigh()
		return after.flat(before)
	}) {
		t.Errorf("before: %+v\nafter: %+v", before, after)
	}
	t.Logf("skepd: %d descriptors, %d KiB, before; %d and %d after", before.descriptors[daemon], before.kib[daemon],
		after.descriptors[daemon], after.kib[daemon])
	r.list()
	r.left()
	r.verify()
}

// short runs cells that end at once, four at a time.
func (r *rig) short(n int) {
	r.t.Helper()
	var wait sync.WaitGroup
	queue := make(chan struct{})
	for range 4 {
		wait.Go(func() {
			for range queue {
				s := r.start("run", "--yes", "--quiet", "--", "/bin/true")
				if code := s.wait(r.t); code != 0 {
					r.t.Errorf("a short cell ended with %d: %s", code, s.err.String())
				}
			}
		})
	}
	for range n {
		queue <- struct{}{}
	}
	close(queue)
	wait.Wait()
}

// weight is what must not grow.
type weight struct {
	temp, run, own, state int // entries, of state without cells and ledger
	groups                int
	processes             int
	descriptors, kib      map[kind]int
}

func (w weight) flat(before weight) bool {
	const slack = 12 << 10 // KiB: a heap breathes
	for k, n := range w.kib {
		if n > before.kib[k]+slack || w.descriptors[k] > before.descriptors[k] {
			return false
		}
	}
	return w.temp == before.temp && w.run == before.run && w.own == before.own && w.state == before.state &&
		w.groups == before.groups && w.processes <= before.processes
}

func (r *rig) weigh() weight {
	r.t.Helper()
	all := r.processes()
	w := weight{
		temp: r.count(r.temp), run: r.count(r.run()), own: r.count(filepath.Join(r.Dir, "own")),
		state:     r.count(r.state(), "cells", "ledger"),
		processes: len(all), descriptors: map[kind]int{}, kib: map[kind]int{},
	}
	r.list()
	_ = filepath.WalkDir("/sys/fs/cgroup", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && r.cells[d.Name()].ID != "" {
			w.groups++
		}
		return nil
	})
	for _, k := range []kind{daemon, worker, resident} {
		for _, p := range all.of(k) {
			at := filepath.Join("/proc", strconv.Itoa(p.pid))
			if list, err := os.ReadDir(filepath.Join(at, "fd")); err == nil {
				w.descriptors[k] = len(list)
			}
			status, _ := os.ReadFile(filepath.Join(at, "status"))
			for line := range strings.Lines(string(status)) {
				if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
					n, _ := strconv.Atoi(strings.Fields(rest)[0])
					w.kib[k] = n
				}
			}
		}
	}
	return w
}

// count is how many entries there are below dir, but for some at its top.
func (r *rig) count(dir string, but ...string) int {
	r.t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		for _, b := range but {
			if path == filepath.Join(dir, b) {
				return fs.SkipDir
			}
		}
		n++
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// TestOneDaemonOfMany: of many first commands at once one starts the daemon, and all
// of them work.
func TestOneDaemonOfMany(t *testing.T) {
	r := set(t)
	var all []*started
	for i := range 20 {
		all = append(all, r.start("run", "--yes", "--quiet", "--", "/bin/sh", "-c", fmt.Sprintf("echo %d", i)))
	}
	for i, s := range all {
		if code := s.wait(t); code != 0 || strings.TrimSpace(s.out.String()) != strconv.Itoa(i) {
			t.Errorf("command %d ended with %d\n%s%s", i, code, s.out.String(), s.err.String())
		}
	}
	if found := r.processes().of(daemon); len(found) != 1 {
		t.Errorf("%d daemons", len(found))
	}
	log, err := os.ReadFile(r.run("skepd.log"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), "skepd serves"); n != 1 {
		t.Errorf("%d daemons have served:\n%s", n, log)
	}
	if n := len(r.list()); n != len(all) {
		t.Errorf("%d cells", n)
	}
	r.recorded()
	r.left()
}

// TestSecondDaemonIsRefused: two daemons on one state directory, with two run
// directories and so unseen by each other (D10).
func TestSecondDaemonIsRefused(t *testing.T) {
	r := set(t)
	r.skep("run", "--yes", "--quiet", "--", "/bin/true")
	begin := time.Now()
	s := r.start("--run", filepath.Join(r.Dir, "other"), "ps")
	if code := s.wait(t); code == 0 || !strings.Contains(s.err.String(), "another skepd has") {
		t.Errorf("the second daemon: %d after %s\n%s%s", code, time.Since(begin), s.out.String(), s.err.String())
	}
	if found := r.processes().of(daemon); len(found) != 1 {
		t.Errorf("%d daemons", len(found))
	}
	r.skep("run", "--yes", "--quiet", "--", "/bin/true")
	r.list()
	r.left()
	r.verify()
}
