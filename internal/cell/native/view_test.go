package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/cell"
)

func newTestView(t testing.TB, l cell.Limits, now time.Time) (*view, func(name string) string) {
	t.Helper()
	path := t.TempDir()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	v, err := newView(dir, l, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.close)
	return v, func(name string) string {
		content, err := os.ReadFile(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
}

func TestViewFollowsTheCell(t *testing.T) {
	begin := time.Now()
	v, read := newTestView(t, cell.Limits{Memory: 1 << 30, MilliCPU: 1500}, begin)
	if got := read("uptime"); got != "0.00 0.00\n" {
		t.Errorf("at the start uptime is %q", got)
	}
	used := cell.Usage{Memory: 300 << 20, Cache: 100 << 20, CPU: 30 * time.Second}
	v.refresh(begin.Add(time.Minute), used)
	if got := read("uptime"); got != "60.00 90.00\n" {
		t.Errorf("after a minute of half a processor uptime is %q", got)
	}
	// 0.5 processors: 0.5 * (1 - 1/e) over the first minute.
	if got := read("loadavg"); got != "0.32 0.09 0.03 1/1 1\n" {
		t.Errorf("loadavg is %q", got)
	}
	for _, line := range []string{
		"MemTotal:        1048576 kB\n", "MemFree:          741376 kB\n", "MemAvailable:     843776 kB\n", "Cached:           102400 kB\n",
	} {
		if !strings.Contains(read("meminfo"), line) {
			t.Errorf("meminfo lacks %q: %s", line, read("meminfo"))
		}
	}
	if got := read("stat"); !strings.HasPrefix(got, "cpu  3000 0 0 9000 0 0 0 0 0 0\ncpu0 1500 0 0 4500 ") || !strings.Contains(got, fmt.Sprintf("\nbtime %d\n", begin.Unix())) {
		t.Errorf("stat is %q", got)
	}
	// More than the limit, or less time than before, is never shown as such.
	v.refresh(begin.Add(time.Minute), cell.Usage{})
	v.refresh(begin.Add(2*time.Minute), cell.Usage{Memory: 2 << 30, Cache: 3 << 30, CPU: time.Hour})
	if got := read("meminfo"); !strings.Contains(got, "MemFree:               0 kB\n") || strings.Contains(got, "-") {
		t.Errorf("meminfo is %s", got)
	}
	if got := read("uptime"); got != "120.00 0.00\n" {
		t.Errorf("uptime is %q", got)
	}
	if got := read("loadavg"); strings.Count(got, "\n") != 1 {
		t.Errorf("the rest of an older content is left: %q", got)
	}
}

// Without limits only time and load are the cell's own; without a directory nothing is.
func TestViewShowsWhatIsLimited(t *testing.T) {
	v, _ := newTestView(t, cell.Limits{}, time.Now())
	if got := fmt.Sprint(v.names); got != "[loadavg uptime]" {
		t.Errorf("%s", got)
	}
	v, err := newView(nil, cell.Limits{Memory: 1}, time.Now())
	if err != nil || len(v.names) != 0 {
		t.Errorf("%v, %v", v.names, err)
	}
	v.refresh(time.Now().Add(time.Hour), cell.Usage{})
}

// One goroutine refreshes the files of all cells; it ends with the last of them, and
// a worker that does not answer stops neither the time nor the others.
func TestRoundsEndWithTheLastCell(t *testing.T) {
	var s views
	asked := make(chan string, 100)
	usage := func(_ context.Context, id string) (cell.Usage, error) {
		asked <- id
		if id == "b" {
			return cell.Usage{}, errors.New("gone")
		}
		return cell.Usage{Memory: 1 << 20}, nil
	}
	begin := time.Now().Add(-time.Hour)
	a, readA := newTestView(t, cell.Limits{Memory: 1 << 30}, begin)
	b, readB := newTestView(t, cell.Limits{}, begin)
	a.counted, b.counted = true, true
	s.add("a", a, usage)
	stop := s.stop
	s.add("b", b, usage)
	if s.stop != stop {
		t.Error("the second cell began rounds of its own")
	}
	for seen := map[string]bool{}; len(seen) < 2; {
		seen[<-asked] = true
	}
	// The third question comes after both were written.
	<-asked
	if got := readA("meminfo"); !strings.Contains(got, "MemFree:         1047552 kB\n") {
		t.Errorf("a: %s", got)
	}
	if got := readB("uptime"); !strings.HasPrefix(got, "360") {
		t.Errorf("b: %q", got)
	}
	s.remove("a")
	s.remove("b")
	s.remove("b")
	if _, open := <-stop; open || s.stop != nil {
		t.Error("the rounds go on without a cell")
	}
}

// The cost of a round for a thousand cells, without asking the worker.
func BenchmarkRound(b *testing.B) {
	begin := time.Now()
	v, _ := newTestView(b, cell.Limits{Memory: 1 << 30, MilliCPU: 2000}, begin)
	n := 0
	for b.Loop() {
		for range 1000 {
			n++
			v.refresh(begin.Add(time.Duration(n)*time.Second), cell.Usage{CPU: time.Duration(n) * time.Millisecond})
		}
	}
}
