package ledger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/sys/durable"
)

func flowBody() kind.Body {
	return &kind.FlowIntent{Flow: "5f0c2a", Listener: "redirect", Direction: "out", Wire: "tls", Transport: "tcp",
		Destination: "registry.example.org", Port: 443, Decision: "allow", Reason: "rule", Rule: "name: registry.example.org", Line: 12,
		Generation: 3, Policy: "8a5edab282632443219e051e4ade2d1d5bbc671c781051bf1437897cbdfea0f1"}
}

// BenchmarkAppend measures acknowledged entries a second beside a loop of bare
// appends with fdatasync on the same disk, alternating in the same run
// (targets.md, "The record"): ratio is ours through theirs; of-bare-group is ours
// through a loop that writes as many entries to each sync, with nothing hashed.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			l := mustOpen(b, testDir(b), Options{})
			bare, err := os.Create(filepath.Join(b.TempDir(), "bare"))
			if err != nil {
				b.Fatal(err)
			}
			defer bare.Close()
			const slice = 100 * time.Millisecond
			var ours, theirs, group rate
			for b.Loop() {
				theirs.add(bareLoop(b, bare, 1, slice))
				group.add(bareLoop(b, bare, writers, slice))
				ours.add(appendLoop(b, l, writers, slice))
			}
			b.ReportMetric(ours.perSecond(), "entries/s")
			b.ReportMetric(theirs.perSecond(), "fdatasyncs/s")
			b.ReportMetric(ours.perSecond()/theirs.perSecond(), "ratio")
			b.ReportMetric(ours.perSecond()/group.perSecond(), "of-bare-group")
			b.ReportMetric(0, "ns/op")
		})
	}
}

type rate struct {
	n    int
	took time.Duration
}

func (r *rate) add(n int, took time.Duration) { r.n += n; r.took += took }

func (r *rate) perSecond() float64 { return float64(r.n) / r.took.Seconds() }

func bareLoop(b *testing.B, f *os.File, entries int, d time.Duration) (int, time.Duration) {
	line := make([]byte, 620*entries)
	begin := time.Now()
	for n := 0; ; n += entries {
		if took := time.Since(begin); took >= d {
			return n, took
		}
		if _, err := f.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := durable.Sync(f); err != nil {
			b.Fatal(err)
		}
	}
}

func appendLoop(b *testing.B, l *Ledger, writers int, d time.Duration) (int, time.Duration) {
	var total atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for w := range writers {
		wg.Go(func() {
			e := Entry{Cell: fmt.Sprint("c", w), Body: flowBody()}
			n := int64(0)
			for time.Since(begin) < d {
				if _, err := l.Append(context.Background(), e); err != nil {
					b.Error(err)
					return
				}
				n++
			}
			total.Add(n)
		})
	}
	wg.Wait()
	return int(total.Load()), time.Since(begin)
}
