package verify_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/verify"
)

func testDir(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger") }

func mustOpen(t testing.TB, dir string, opts ledger.Options) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func note(text string) kind.Body { return kind.Note{By: "test", Text: kind.Bytes(text)} }

func mustAppend(t testing.TB, l *ledger.Ledger, cell, text string) {
	t.Helper()
	if _, err := l.Append(context.Background(), ledger.Entry{Cell: cell, Body: note(text)}); err != nil {
		t.Fatal(err)
	}
}

func sumOf(payload []byte) entry.Hash { return sha256.Sum256(payload) }

// BenchmarkVerify measures verify beside SHA-256 over the same files: that of
// this program's library, and sha256sum where there is one (targets.md).
func BenchmarkVerify(b *testing.B) {
	dir := testDir(b)
	l := mustOpen(b, dir, ledger.Options{})
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for range 1 << 10 {
				if _, err := l.Append(context.Background(), ledger.Entry{Cell: fmt.Sprint("c", w), Body: kind.FlowIntent{
					Flow: "5f0c2a", Listener: "redirect", Direction: "out", Wire: "tls", Transport: "tcp",
					Destination: "registry.example.org", Port: 443, Decision: "allow", Reason: "rule", Rule: "name: registry.example.org", Line: 12,
					Generation: 3, Policy: "8a5edab282632443219e051e4ade2d1d5bbc671c781051bf1437897cbdfea0f1",
				}}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	files, err := entry.Parts(dir)
	if err != nil {
		b.Fatal(err)
	}
	var paths []string
	for _, p := range files {
		paths = append(paths, p.Path)
	}
	size := files[len(files)-1].End()
	var ours, theirs, program time.Duration
	sum, missing := exec.LookPath("sha256sum")
	n := 0
	for b.Loop() {
		begin := time.Now()
		h := sha256.New()
		for _, p := range files {
			f, err := os.Open(p.Path)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(h, f); err != nil {
				b.Fatal(err)
			}
			_ = f.Close()
		}
		theirs += time.Since(begin)
		if missing == nil {
			begin = time.Now()
			if err := exec.Command(sum, paths...).Run(); err != nil {
				b.Fatal(err)
			}
			program += time.Since(begin)
		}
		begin = time.Now()
		if r, err := verify.Ledger(dir, verify.Options{}); err != nil || r.Status != verify.Valid {
			b.Fatal(r, err)
		}
		ours += time.Since(begin)
		n++
	}
	mb := float64(size) * float64(n) / 1e6
	b.ReportMetric(mb/ours.Seconds(), "MB/s")
	b.ReportMetric(mb/theirs.Seconds(), "sha256-MB/s")
	b.ReportMetric(theirs.Seconds()/ours.Seconds(), "of-library")
	if missing == nil {
		b.ReportMetric(program.Seconds()/ours.Seconds(), "of-sha256sum")
	}
	b.ReportMetric(0, "ns/op")
}

// D8: verify streams. A journal of several MiB passes through a heap that grows
// by less than three.
func TestMemoryIsConstant(t *testing.T) {
	dir := testDir(t)
	l := mustOpen(t, dir, ledger.Options{})
	body := kind.Exec{Path: "/bin/true", Args: []kind.Bytes{"true", kind.Bytes(bytes.Repeat([]byte("x"), 400))}, Decision: "allow"}
	for range 10000 {
		if _, err := l.Append(context.Background(), ledger.Entry{Cell: "a", Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	base, most := heap(), uint64(0)
	done, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		for {
			select {
			case <-done:
				return
			default:
				most = max(most, heap())
				runtime.Gosched()
			}
		}
	}()
	r, err := verify.Ledger(dir, verify.Options{})
	close(done)
	<-sampled
	if err != nil || r.Status != verify.Valid || r.Entries != 10000 {
		t.Fatal(r, err)
	}
	if most > base+3<<20 {
		t.Errorf("the heap grew from %d to %d bytes", base, most)
	}
}
