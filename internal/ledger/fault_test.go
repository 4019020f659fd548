package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/verify"
)

// faultyDisk is a disk with room for so many bytes, which then fails with err;
// or whose syncs fail after so many.
type faultyDisk struct {
	osDisk
	mu       sync.Mutex
	room     int64
	err      error
	syncs    int // before they fail; negative: never
	reserved int64
}

func (d *faultyDisk) open(name string) (file, error) {
	f, err := d.osDisk.open(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file: f, d: d}, nil
}

func (d *faultyDisk) reserve(name string, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.room < size {
		return d.err
	}
	d.room -= size
	d.reserved += size
	return nil
}

func (d *faultyDisk) remove(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room += d.reserved
	d.reserved = 0
	return nil
}

type faultyFile struct {
	file
	d *faultyDisk
}

// WriteAt writes what there is room for, as a kernel does.
func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n := min(int64(len(p)), f.d.room)
	f.d.room -= n
	m, err := f.file.WriteAt(p[:n], off)
	if err == nil && n < int64(len(p)) {
		err = f.d.err
	}
	return m, err
}

// Sync fails when its turn has come. It does not sync: no test here takes the
// power away, and those that count bytes count thousands of them.
func (f *faultyFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.syncs == 0 {
		return syscall.EIO
	}
	f.d.syncs--
	return nil
}

func (d *faultyDisk) syncDir(string) error { return nil }

func goodDisk() *faultyDisk { return &faultyDisk{room: 1 << 40, syncs: -1} }

// acked is what a writer was told is recorded.
type acked map[string]uint64

func (a acked) check(t *testing.T, dir, what string) {
	t.Helper()
	have := acked{}
	for r, err := range Read(dir, Filter{}) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		have[r.Cell] = r.Seq
	}
	for cell, seq := range a {
		if have[cell] < seq {
			t.Fatalf("%s: cell %s was acknowledged up to %d and ends at %d", what, cell, seq, have[cell])
		}
	}
}

// reopen opens the ledger as the next daemon does, and holds it against what
// was acknowledged and against verify.
func (a acked) reopen(t *testing.T, dir, keys, what string) {
	t.Helper()
	l, err := Open(dir, Options{Keys: keys, disk: goodDisk()})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	a.check(t, dir, what)
	if _, err := l.Append(context.Background(), Entry{Cell: "a", Body: note("after")}); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := l.Close(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if r, err := verify.Ledger(dir, verify.Options{Key: l.Key()}); err != nil || r.Status != verify.Valid {
		t.Fatalf("%s: %v, %v", what, r, err)
	}
}

func (a acked) append(l *Ledger, cell string, b kind.Body) error {
	seq, err := l.Append(context.Background(), Entry{Cell: cell, Body: b})
	if err == nil {
		a[cell] = seq
	}
	return err
}

// A disk that fails after any number of bytes, with ENOSPC and with EIO, in
// the journal and in the seals: what was acknowledged is kept, what was refused
// is not half there, and the next daemon starts.
func TestDiskFailsAtEveryByte(t *testing.T) {
	// Another start in each run, so that each byte has its turn.
	const step = 151
	start := rand.Int64N(step)
	t.Logf("from byte %d, every %d", start, step)
	keys := t.TempDir()
	for _, errno := range []error{syscall.ENOSPC, syscall.EIO} {
		for room := start; room < 13000; room += step {
			what := fmt.Sprintf("%v after %d bytes", errno, room)
			dir := testDir(t)
			d := &faultyDisk{room: room, err: errno, syncs: -1}
			l, err := Open(dir, Options{Keys: keys, disk: d, Reserve: 1, JournalBytes: 400})
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			a := acked{}
			for i := range 4 {
				_ = a.append(l, "a", note(fmt.Sprint("entry ", i)))
				_ = a.append(l, "b", kind.Exec{Path: "/bin/true", Decision: "allow"})
				if i == 1 {
					_ = l.EndCell("a")
				}
			}
			_ = l.Close()
			a.check(t, dir, what)
			a.reopen(t, dir, keys, what)
		}
	}
}

// D4: a full disk refuses what needs a record, and still records the denial
// and the stop, and seals them.
func TestFullDiskRecordsTheStop(t *testing.T) {
	dir := testDir(t)
	clock := newHandClock()
	d := &faultyDisk{room: 1<<16 + 3000, err: syscall.ENOSPC, syncs: -1}
	l := mustOpen(t, dir, Options{disk: d, Reserve: 1 << 16, Clock: clock})
	a := acked{}
	var err error
	for i := 0; err == nil; i++ {
		err = a.append(l, "a", kind.FlowIntent{Destination: "example.org", Decision: "allow"})
		if i > 100 {
			t.Fatal("the disk never fills")
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	n := a["a"]
	if err := a.append(l, "a", kind.FlowIntent{Decision: "allow"}); !errors.Is(err, ErrFull) {
		t.Fatalf("an intent on a full disk: %v", err)
	}
	// Denials may take half of the reserve, and no more.
	denials := 0
	for a.append(l, "a", kind.FlowDenied{Destination: "example.org", Decision: "block", Reason: "record"}) == nil {
		if denials++; denials > 1000 {
			t.Fatal("denials eat the whole reserve")
		}
	}
	if denials == 0 {
		t.Fatal("no denial was recorded")
	}
	if err := a.append(l, "a", kind.CellStopped{Cause: "ledger"}); err != nil {
		t.Fatalf("the stop: %v", err)
	}
	if err := l.EndCell("a"); err != nil {
		t.Fatalf("the seal: %v", err)
	}
	// What the end settles, and the drop that makes room.
	for _, body := range []kind.Body{kind.BudgetSettled{Account: "net"}, note("the layer was dropped")} {
		if err := a.append(l, "a", body); err != nil {
			t.Fatalf("%s on a full disk: %v", body.Kind(), err)
		}
	}
	if a["a"] != n+uint64(denials)+3 {
		t.Errorf("%d entries after %d and %d denials", a["a"], n, denials)
	}
	// There is room again: the reserve is made anew, then all goes on.
	d.mu.Lock()
	d.room = 1 << 20
	d.mu.Unlock()
	clock.turn(2 * time.Second)
	if err := a.append(l, "a", kind.FlowIntent{Decision: "allow"}); err != nil {
		t.Fatalf("after room was made: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a.reopen(t, dir, "", "a disk that was full")
}

// A sync that fails is never tried again: nothing is acknowledged after it.
func TestFailedSyncEndsTheLedger(t *testing.T) {
	for n := range 6 {
		dir := testDir(t)
		d := &faultyDisk{room: 1 << 30, err: syscall.EIO, syncs: n}
		l, err := Open(dir, Options{disk: d})
		if err != nil {
			continue // the sync of the opening itself
		}
		a := acked{}
		var wg sync.WaitGroup
		var mu sync.Mutex
		broken := 0
		for w := range 4 {
			wg.Go(func() {
				for range 10 {
					seq, err := l.Append(context.Background(), Entry{Cell: fmt.Sprint("c", w), Body: note("x")})
					mu.Lock()
					if err == nil {
						a[fmt.Sprint("c", w)] = seq
					} else if broken++; !errors.Is(err, ErrBroken) {
						t.Error(err)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if broken == 0 {
			t.Error("every entry was acknowledged on a disk that cannot sync")
		}
		if err := l.Close(); err == nil {
			t.Error("a broken ledger closed well")
		}
		a.reopen(t, dir, "", fmt.Sprintf("sync %d failed", n))
	}
}

// Many writers on a disk that fills up: all are answered, none twice.
func TestManyWritersOnAFullDisk(t *testing.T) {
	dir := testDir(t)
	d := &faultyDisk{room: 20000, err: syscall.ENOSPC, syncs: -1}
	l := mustOpen(t, dir, Options{disk: d, Reserve: 4096, SegmentBytes: 3000})
	var mu sync.Mutex
	a := acked{}
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			cell := fmt.Sprint("c", w%8)
			for i := range 40 {
				body := note("x")
				if i%4 == 1 {
					body = kind.Exec{Path: "/bin/true"}
				}
				ctx, cancel := context.WithCancel(context.Background())
				if i%5 == 0 {
					go cancel()
				}
				seq, err := l.Append(ctx, Entry{Cell: cell, Body: body})
				cancel()
				mu.Lock()
				if err == nil {
					a[cell] = max(a[cell], seq)
				} else if !errors.Is(err, ErrFull) && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	_ = l.Close()
	a.check(t, dir, "full")
	a.reopen(t, dir, "", "full")
}

func TestErrorsSayWhatToDo(t *testing.T) {
	if !strings.Contains(ErrDamaged.Error(), "skep ledger verify") || !strings.Contains(ErrBroken.Error(), "restart") {
		t.Error("an error does not say what to do next")
	}
}

// What is freed for the last words is the journal's and the seals' own at once, and no
// part of what they hold.
func TestReserveIsNotFreedForOthers(t *testing.T) {
	dir := t.TempDir()
	f, err := osDisk{}.open(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("abc"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.(keeper).keep(1 << 20); err != nil {
		t.Skipf("this file system keeps no blocks: %v", err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(dir, "f"), &st); err != nil || st.Size != 3 || st.Blocks*512 < 1<<20 {
		t.Errorf("%d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
}
