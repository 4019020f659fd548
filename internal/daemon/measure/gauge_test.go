package measure

import (
	"context"
	"errors"
	"testing"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/sys"
)

// over is a cell that has ended.
type over struct{ cell.Running }

func (over) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// bench is a gauge of a filesystem and a cell that a test fills.
type bench struct {
	Gauge
	time  time.Time
	fs    sys.Filesystem
	holds int64
	looks int
	err   error
	run   cell.Running
}

func newBench(limit int64) *bench {
	b := &bench{time: time.Unix(1000, 0), fs: sys.Filesystem{Bytes: 1 << 40, FreeBytes: 1 << 39, Taken: 500}}
	b.limit = limit
	b.now = func() time.Time { return b.time }
	b.disk = func() (sys.Filesystem, error) { return b.fs, nil }
	b.cell = func() cell.Running { return b.run }
	b.look = func(context.Context) (int64, error) { b.looks++; return b.holds, b.err }
	return b
}

// turn is one second of a cell's life.
func (b *bench) turn() cells.Cause {
	over, look, _ := b.Glance()
	if over.Word == "" && look {
		over = b.Over(context.Background())
	}
	return over
}

func TestGaugeLooksOnlyWhenItMust(t *testing.T) {
	b := newBench(100)
	b.begin(true)
	for i, step := range []struct {
		change func()
		word   string
		looks  int
	}{
		{func() {}, "", 0},
		{func() { b.fs.Taken = 560 }, "", 0},                     // whoever wrote it
		{func() { b.fs.Taken, b.holds = 700, 20 }, "", 1},        // more than the limit came in: it was others
		{func() { b.fs.Taken = 770 }, "", 1},                     // 20 and at most 70 more
		{func() { b.fs.Taken, b.holds = 781, 101 }, "budget", 2}, // passed
		{func() { b.fs.Taken, b.holds = 400, 30 }, "", 3},        // it held more than the limit: look again
		{func() { b.fs.Taken, b.holds = 300, 80 }, "", 3},        // freed by others, which hides growth
		{func() { b.time = b.time.Add(time.Minute) }, "", 4},     // not for long
		{func() { b.time, b.err = b.time.Add(time.Minute), errors.New("x") }, "", 5},
	} {
		step.change()
		b.rest = time.Time{}
		if over := b.turn(); over.Word != step.word || b.looks != step.looks {
			t.Errorf("step %d: %+v after %d looks, want %q after %d", i, over, b.looks, step.word, step.looks)
		}
	}
	b.run = over{}
	if got := b.Over(context.Background()); got.Word != "" || b.looks != 6 {
		t.Errorf("at the end: %+v after %d looks", got, b.looks)
	}
	b.run = nil
	b.fs.Taken += 21
	if got := b.Over(context.Background()); got.Word != "failed" {
		t.Errorf("it may hold more, nobody could look, and the cause is %+v", got)
	}
}

// TestGaugeBegunLater: what was there before is looked at first.
func TestGaugeBegunLater(t *testing.T) {
	b := newBench(100)
	b.holds = 170
	b.begin(false)
	if over := b.turn(); over.Peak != 170 || over.Budget != "disk" {
		t.Errorf("%+v", over)
	}
}

// TestGaugeIsNotPassedDuringALook: an agent makes a look slow, and fills the disk
// meanwhile, or in the time that no look is taken for that.
func TestGaugeIsNotPassedDuringALook(t *testing.T) {
	b := newBench(1600)
	b.begin(true)
	b.fs.Taken, b.holds = 500+1700, 900
	looking, seen := make(chan struct{}), make(chan struct{})
	b.look = func(context.Context) (int64, error) {
		close(looking)
		<-seen
		return b.holds, nil
	}
	_, look, _ := b.Glance()
	if !look {
		t.Fatal("nobody looks")
	}
	first := make(chan cells.Cause)
	go func() { first <- b.Over(context.Background()) }()
	<-looking
	if over, again, _ := b.Glance(); over.Word != "" || again {
		t.Errorf("a look that has begun: %+v, %v", over, again)
	}
	b.mu.Lock()
	b.fs.Taken += 100
	b.mu.Unlock()
	if over, _, _ := b.Glance(); over.Budget != "disk" || over.Detail == "" {
		t.Errorf("it may hold far more, and the look goes on: %+v", over)
	}
	close(seen)
	if over := <-first; over.Word != "" {
		t.Errorf("the look found %+v", over)
	}
	b.rest = b.time.Add(10 * time.Second) // the look took a second
	b.fs.Taken = 2200 + 700
	if over, look, _ := b.Glance(); over.Word != "" || look {
		t.Errorf("what is left is not used up: %+v, %v", over, look)
	}
	b.fs.Taken = 2200 + 900
	if over, _, _ := b.Glance(); over.Budget != "disk" {
		t.Errorf("more came in than is left, and nobody looks: %+v", over)
	}
}

// TestGaugeCountsALateLookAsOver: what cannot be counted is not within a limit.
func TestGaugeCountsALateLookAsOver(t *testing.T) {
	b := newBench(100)
	b.begin(false)
	if c := b.judge(b.fs, nil, 0, context.DeadlineExceeded, true); c.Budget != "disk" || c.Detail == "" {
		t.Errorf("%+v", c)
	}
}

// TestGaugeKeepsTheFloor: who fills the filesystem is ended before it is full, by bytes
// and by inodes, whatever his budget; who does not fill it is not.
func TestGaugeKeepsTheFloor(t *testing.T) {
	for name, fill := range map[string]func(fs *sys.Filesystem){
		"bytes":  func(fs *sys.Filesystem) { fs.FreeBytes = floorBytes - 1 },
		"inodes": func(fs *sys.Filesystem) { fs.Inodes, fs.FreeInodes = 1000, 9 },
	} {
		for _, limit := range []int64{noLimit, 1 << 40} {
			b := newBench(limit)
			b.fs.Inodes, b.fs.FreeInodes = 1000, 500
			b.begin(true)
			b.holds = 1 << 30
			b.fs.Taken += 1 << 30
			if over := b.turn(); over.Word != "" || b.looks > 0 {
				t.Errorf("%s: far from full: %+v after %d looks", name, over, b.looks)
			}
			fill(&b.fs)
			over := b.turn()
			if over.Budget != "disk" || over.Detail == "" || over.Peak != 1<<30 {
				t.Errorf("%s: it fills the disk: %+v", name, over)
			}
			if _, _, next := b.Glance(); next != hurried {
				t.Errorf("%s: looked at again in %v", name, next)
			}
			b.held, b.holds, b.rest = 0, 1<<20, time.Time{}
			if over := b.turn(); over.Word != "" {
				t.Errorf("%s: others fill the disk: %+v", name, over)
			}
		}
	}
}
