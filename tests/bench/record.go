package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/verify"
	"skep.dev/skep/internal/sys/durable"
)

// measureRecord compares acknowledged entries with the disk's own syncs, and the
// verifier with a bare digest of the same bytes.
func measureRecord(s *settings) ([]Row, error) {
	dir := filepath.Join(s.dir, "record")
	l, err := ledger.Open(dir, ledger.Options{})
	if err != nil {
		return nil, err
	}
	rows, err := appends(s, l)
	if err == nil {
		err = fill(s, l)
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return rows, err
	}
	more, err := verifies(s, dir)
	return append(rows, more...), err
}

func flowIntent() kind.Body {
	return &kind.FlowIntent{
		Flow: "5f0c2a", Listener: "native", Direction: "out", Wire: "tls", Transport: "tcp", Destination: "registry.example.org",
		Port: 443, Decision: "allow", Rule: "net-1", Line: 12, Generation: 1, Policy: "8a5edab282632443219e051e4ade2d1d5bbc671c781051bf1437897cbdfea0f1",
	}
}

const slice = 100 * time.Millisecond

func appends(s *settings, l *ledger.Ledger) ([]Row, error) {
	f, err := os.Create(filepath.Join(s.dir, "bare"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	one := &contender{name: "ledger", turn: func() (float64, error) { return appendFor(l, 1) }}
	many := &contender{name: "ledger", turn: func() (float64, error) { return appendFor(l, 64) }}
	disk := &contender{name: "fdatasync", turn: func() (float64, error) { return bare(f, 1) }}
	group := &contender{name: "64 entries a sync", turn: func() (float64, error) { return bare(f, 64) }}
	if err := alternate(s.rounds(30), one, disk, many, group); err != nil {
		return nil, err
	}
	first := against("record, entries a second, 1 writer", "/s", one, disk, ">= 0.8", atLeast(0.8))
	second := against("record, entries a second, 64 writers", "/s", many, disk, ">= 35, or the next row", nil)
	third := against("record, entries a second, 64 writers", "/s", many, group, ">= 0.6, or the row above", nil)
	ok := second.Ratio >= 35 || third.Ratio >= 0.6
	second.Met, third.Met = &ok, &ok
	return []Row{first, second, third}, nil
}

// bare appends as many bytes as entries have, so many to a sync, with nothing hashed.
func bare(f *os.File, entries int) (float64, error) {
	line := make([]byte, 700*entries)
	n, begin := 0, time.Now()
	for time.Since(begin) < slice {
		if _, err := f.Write(line); err != nil {
			return 0, err
		}
		if err := durable.Sync(f); err != nil {
			return 0, err
		}
		n += entries
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

func appendFor(l *ledger.Ledger, writers int) (float64, error) {
	var n atomic.Int64
	errs := make([]error, writers)
	begin := time.Now()
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for time.Since(begin) < slice && errs[w] == nil {
				_, errs[w] = l.Append(context.Background(), ledger.Entry{Cell: fmt.Sprint("c", w), Body: flowIntent()})
				n.Add(1)
			}
		})
	}
	wait.Wait()
	return float64(n.Load()) / time.Since(begin).Seconds(), errors.Join(errs...)
}

// fill writes enough that its verification takes a while.
func fill(s *settings, l *ledger.Ledger) error {
	entries := 60000
	if s.quick {
		entries = 20000
	}
	errs := make([]error, 64)
	var wait sync.WaitGroup
	for w := range errs {
		wait.Go(func() {
			for i := 0; i < entries/len(errs) && errs[w] == nil; i++ {
				_, errs[w] = l.Append(context.Background(), ledger.Entry{Cell: fmt.Sprint("v", w%8), Body: flowIntent()})
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

func verifies(s *settings, dir string) ([]Row, error) {
	var size int64
	ours := &contender{name: "verify", turn: func() (float64, error) {
		begin := time.Now()
		report, err := verify.Ledger(dir, verify.Options{})
		if err == nil && report.Status != verify.Valid {
			err = fmt.Errorf("the ledger is %v", report.Status)
		}
		return float64(size) / 1e6 / time.Since(begin).Seconds(), err
	}}
	library := &contender{name: "crypto/sha256", turn: func() (_ float64, err error) {
		begin := time.Now()
		size, err = digestAll(filepath.Join(dir, "journal"))
		return float64(size) / 1e6 / time.Since(begin).Seconds(), err
	}}
	if _, err := library.turn(); err != nil { // which also finds the size
		return nil, err
	}
	parts, err := filepath.Glob(filepath.Join(dir, "journal", "*"))
	if err != nil {
		return nil, err
	}
	tool := command("sha256sum", parts...)
	took := tool.turn
	tool.turn = func() (float64, error) {
		spent, err := took()
		return float64(size) / 1e3 / spent, err
	}
	err = alternate(s.rounds(30), ours, tool, library)
	return []Row{
		against("record, verify", "MB/s", ours, tool, ">= 0.5", atLeast(0.5)), against("record, verify", "MB/s", ours, library, "", nil),
	}, err
}

func digestAll(dir string) (size int64, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	h := sha256.New()
	for _, e := range files {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return size, err
		}
		n, err := io.Copy(h, f)
		_ = f.Close()
		if size += n; err != nil {
			return size, err
		}
	}
	return size, nil
}
