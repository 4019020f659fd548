package ledger

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skep.dev/skep/internal/ledger/kind"
)

// slowDisk holds each sync of a file until the test lets it go.
type slowDisk struct {
	osDisk
	on    atomic.Bool
	begun chan struct{}
	let   chan struct{}
}

type slowFile struct {
	file
	d *slowDisk
}

func (d *slowDisk) open(name string) (file, error) {
	f, err := d.osDisk.open(name)
	return slowFile{f, d}, err
}

func (f slowFile) Sync() error {
	if f.d.on.Load() {
		f.d.begun <- struct{}{}
		<-f.d.let
	}
	return f.file.Sync()
}

func waitFor(l *Ledger, n int) {
	for l.waiting.Load() != int64(n) {
		runtime.Gosched()
	}
}

// While one sync is under way all that comes waits for the next, and shares it.
// Nobody is answered before the sync that covers it.
func TestWritersShareASync(t *testing.T) {
	d := &slowDisk{begun: make(chan struct{}), let: make(chan struct{})}
	l := mustOpen(t, testDir(t), Options{disk: d})
	d.on.Store(true)
	var answered atomic.Int32
	var wg sync.WaitGroup
	write := func(i int) {
		if _, err := l.Append(context.Background(), Entry{Cell: fmt.Sprint("c", i), Body: note("x")}); err != nil {
			t.Error(err)
		}
		answered.Add(1)
	}
	wg.Go(func() { write(0) })
	<-d.begun
	for i := range 63 {
		wg.Go(func() { write(i + 1) })
	}
	waitFor(l, 63)
	if n := answered.Load(); n != 0 {
		t.Errorf("%d were answered before any sync had ended", n)
	}
	d.let <- struct{}{}
	<-d.begun // the second sync: if it is not the last, the test hangs below
	if n := answered.Load(); n > 1 {
		t.Errorf("%d were answered by a sync that covers one", n)
	}
	d.on.Store(false)
	d.let <- struct{}{}
	wg.Wait()
}

// A caller that gives up while it is the leader-to-be leaves nobody waiting.
func TestGivingUpPassesTheLeadOn(t *testing.T) {
	d := &slowDisk{begun: make(chan struct{}), let: make(chan struct{})}
	l := mustOpen(t, testDir(t), Options{disk: d})
	d.on.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() { appendAs(context.Background(), t, l, nil) })
	<-d.begun
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() { appendAs(ctx, t, l, context.Canceled) })
	waitFor(l, 1)
	cancel()
	waitFor(l, 0)
	wg.Go(func() { appendAs(context.Background(), t, l, nil) })
	waitFor(l, 1)
	d.on.Store(false)
	d.let <- struct{}{}
	wg.Wait()
}

func appendAs(ctx context.Context, t *testing.T, l *Ledger, want error) {
	if _, err := l.Append(ctx, Entry{Cell: "a", Body: note("x")}); !errors.Is(err, want) {
		t.Errorf("append: %v, want %v", err, want)
	}
}

// D3: exec entries are written when they are acknowledged, and synced 50 ms
// later without anybody waiting.
func TestExecIsSyncedLater(t *testing.T) {
	clock := newHandClock()
	dir := testDir(t)
	l := mustOpen(t, dir, Options{Clock: clock})
	synced := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.synced == l.written && l.written > 0
	}
	if _, err := l.Append(context.Background(), Entry{Cell: "a", Body: kind.Exec{Path: "/bin/true", Decision: "allow"}}); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, dir, Filter{}); len(got) != 1 {
		t.Error("acknowledged, and not written")
	}
	clock.turn(49 * time.Millisecond)
	if synced() {
		t.Error("it waited for a sync")
	}
	clock.turn(time.Millisecond)
	if !synced() {
		t.Error("not synced after 50 ms")
	}
}
