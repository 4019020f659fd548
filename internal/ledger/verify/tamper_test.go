package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/seal"
	"skep.dev/skep/internal/ledger/verify"
)

// frames is a ledger taken apart, to be put together otherwise.
type frames struct {
	journal [][]byte
	seals   [][]byte
}

func readFrames(t testing.TB, path string) [][]byte {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out [][]byte
	r := entry.NewReader(f, 0)
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, bytes.Clone(p))
	}
}

func writeFrames(t testing.TB, path string, list [][]byte) {
	t.Helper()
	var b []byte
	for _, p := range list {
		head := make([]byte, entry.HeadSize)
		entry.PutHead(head, p)
		b = append(append(b, head...), p...)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func journal0(dir string) string { return filepath.Join(dir, "journal", entry.PartName(0)) }

func takeApart(t testing.TB, dir string) frames {
	return frames{readFrames(t, journal0(dir)), readFrames(t, filepath.Join(dir, "seals"))}
}

func (f frames) put(t testing.TB, dir string) {
	writeFrames(t, journal0(dir), f.journal)
	writeFrames(t, filepath.Join(dir, "seals"), f.seals)
}

func isOf(cell string) func([]byte) bool {
	return func(p []byte) bool { return bytes.Contains(p, []byte(`,"cell":"`+cell+`","kind":`)) }
}

// swapNames exchanges two cells' names in every frame.
func swapNames(list [][]byte) {
	for i, p := range list {
		s := strings.NewReplacer(`"cell":"a"`, `"cell":"b"`, `"cell":"b"`, `"cell":"a"`).Replace(string(p))
		list[i] = []byte(s)
	}
}

// written makes a ledger of cells a and b with two sealed segments each, in the
// order a b a b ..., and returns its key.
func written(t testing.TB, dir string) *seal.Public {
	t.Helper()
	l := mustOpen(t, dir, ledger.Options{})
	for round := range 2 {
		for i := range 3 {
			mustAppend(t, l, "a", fmt.Sprintf("a%d%d", round, i))
			mustAppend(t, l, "b", fmt.Sprintf("b%d%d", round, i))
		}
		for _, c := range []string{"a", "b"} {
			if err := l.EndCell(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Key()
}

// forge chains an entry to the end of a cell's chain, as an attacker without
// the key can.
func forge(t testing.TB, f *frames, cell string) {
	t.Helper()
	e := entry.Entry{Seq: 1, Prev: entry.Genesis(cell), Time: time.Unix(1796000000, 0), Cell: cell, Kind: "note", Body: []byte(`{"by":"x","text":"forged"}`)}
	for _, p := range f.journal {
		if isOf(cell)(p) {
			e.Seq++
			e.Prev = sumOf(p)
		}
	}
	raw, err := entry.Append(nil, &e)
	if err != nil {
		t.Fatal(err)
	}
	f.journal = append(f.journal, raw)
}

// Every tampering of D8, each with the status and the place that must be
// reported. The attacker has no key, and sets every CRC right.
func TestTampering(t *testing.T) {
	master := testDir(t)
	key := written(t, master)
	good := takeApart(t, master)
	clean, err := verify.Ledger(master, verify.Options{Key: key})
	if err != nil || clean.Status != verify.Valid || clean.Entries != 12 || clean.Seals != 4 || clean.Cells != 2 {
		t.Fatal(clean, err)
	}
	other, err := seal.Load(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	sub := func(list [][]byte, i int, from, to string) {
		if !bytes.Contains(list[i], []byte(from)) {
			t.Fatalf("%s has no %s", list[i], from)
		}
		list[i] = bytes.Replace(list[i], []byte(from), []byte(to), 1)
	}
	for _, c := range []struct {
		name   string
		do     func(f *frames)
		status verify.Status
		cell   string
		seq    uint64
		seal   uint64
	}{
		{"an entry's body changed", func(f *frames) { sub(f.journal, 2, "a01", "a0X") }, verify.Altered, "a", 2, 0},
		{"the last entry's body changed", func(f *frames) { sub(f.journal, 11, "b12", "b1X") }, verify.Altered, "b", 6, 0},
		{"an entry's time changed", func(f *frames) { sub(f.journal, 4, `"time":"1`, `"time":"2`) }, verify.Altered, "a", 3, 0},
		{"an entry's kind changed", func(f *frames) { sub(f.journal, 4, `"kind":"note"`, `"kind":"exec"`) }, verify.Altered, "a", 3, 0},
		{"an agent's name added", func(f *frames) { sub(f.journal, 0, `"agent":""`, `"agent":"x"`) }, verify.Altered, "a", 1, 0},
		{"spaces in an entry", func(f *frames) { sub(f.journal, 0, `"by":"test"`, `"by": "test"`) }, verify.Altered, "a", 1, 0},
		{"an entry cut", func(f *frames) { f.journal = slices.Delete(f.journal, 2, 3) }, verify.Truncated, "a", 2, 0},
		{"the first entry cut", func(f *frames) { f.journal = f.journal[1:] }, verify.Truncated, "a", 1, 0},
		{"the last entry cut", func(f *frames) { f.journal = f.journal[:11] }, verify.Truncated, "b", 6, 0},
		{"a segment cut", func(f *frames) { f.journal = f.journal[:6] }, verify.Truncated, "a", 4, 0},
		{"the first segment cut", func(f *frames) { f.journal = f.journal[6:] }, verify.Truncated, "a", 1, 0},
		{"a cell deleted", func(f *frames) { f.journal = slices.DeleteFunc(f.journal, isOf("a")) }, verify.Truncated, "a", 1, 0},
		{"a cell deleted, with its seals", func(f *frames) {
			f.journal = slices.DeleteFunc(f.journal, isOf("b"))
			f.seals = slices.DeleteFunc(f.seals, isOf("b"))
		}, verify.Truncated, "a", 0, 2},
		{"everything deleted but the seals", func(f *frames) { f.journal = nil }, verify.Truncated, "a", 1, 0},
		{"a seal cut", func(f *frames) { f.seals = slices.Delete(f.seals, 1, 2) }, verify.Truncated, "a", 0, 2},
		{"the first seal cut", func(f *frames) { f.seals = f.seals[1:] }, verify.Truncated, "b", 0, 1},
		{"the last seal cut", func(f *frames) { f.seals = f.seals[:3] }, verify.UnsignedTail, "", 0, 0},
		{"all seals cut", func(f *frames) { f.seals = nil }, verify.UnsignedTail, "", 0, 0},
		{"last segment and seal cut, then appended", func(f *frames) {
			f.journal, f.seals = f.journal[:11], f.seals[:3]
			forge(t, f, "b")
		}, verify.UnsignedTail, "", 0, 0},
		{"cut and appended under the seal", func(f *frames) { f.journal = f.journal[:11]; forge(t, f, "b") }, verify.Altered, "b", 6, 0},
		{"appended", func(f *frames) { forge(t, f, "a") }, verify.UnsignedTail, "", 0, 0},
		{"a new cell appended", func(f *frames) { forge(t, f, "c") }, verify.UnsignedTail, "", 0, 0},
		{"a seal in the journal", func(f *frames) { f.journal = append(f.journal, f.seals[0]) }, verify.Altered, "a", 1, 0},
		{"cells swapped", func(f *frames) { swapNames(f.journal) }, verify.Altered, "b", 1, 0},
		{"cells swapped, seals too", func(f *frames) { swapNames(f.journal); swapNames(f.seals) }, verify.Altered, "b", 0, 1},
		{"two entries of a cell exchanged", func(f *frames) { f.journal[0], f.journal[2] = f.journal[2], f.journal[0] }, verify.Truncated, "a", 1, 0},
		{"entries moved over a seal", func(f *frames) {
			f.journal[5], f.journal[6] = f.journal[6], f.journal[5]
		}, verify.Altered, "a", 3, 1},
		{"an entry twice", func(f *frames) { f.journal = slices.Insert(f.journal, 3, f.journal[2]) }, verify.Forked, "a", 2, 0},
		{"another entry of the same number", func(f *frames) {
			f.journal = slices.Insert(f.journal, 3, bytes.Replace(f.journal[2], []byte("a01"), []byte("a0X"), 1))
		}, verify.Forked, "a", 2, 0},
		{"a seal twice", func(f *frames) { f.seals = slices.Insert(f.seals, 1, f.seals[0]) }, verify.Forked, "a", 0, 2},
		{"seals exchanged", func(f *frames) { f.seals[1], f.seals[2] = f.seals[2], f.seals[1] }, verify.Truncated, "a", 0, 2},
		{"a seal's count changed", func(f *frames) { sub(f.seals, 2, `"count":"3"`, `"count":"4"`) }, verify.Altered, "a", 0, 3},
		{"another key's seals", func(f *frames) { resign(t, f, other) }, verify.WrongKey, "a", 0, 1},
		{"a later version", func(f *frames) { sub(f.journal, 7, `"v":"1"`, `"v":"2"`) }, verify.Unknown, "", 0, 0},
		{"an unknown kind", func(f *frames) { sub(f.journal, 7, `"kind":"note"`, `"kind":"poem"`) }, verify.Unknown, "b", 4, 0},
		{"a later version of a seal", func(f *frames) { sub(f.seals, 3, `"v":"1"`, `"v":"2"`) }, verify.Unknown, "", 0, 4},
		{"nothing left", func(f *frames) { f.journal, f.seals = nil, nil }, verify.Empty, "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := testDir(t)
			if err := os.MkdirAll(filepath.Join(dir, "journal"), 0o700); err != nil {
				t.Fatal(err)
			}
			f := frames{slices.Clone(good.journal), slices.Clone(good.seals)}
			c.do(&f)
			f.put(t, dir)
			r, err := verify.Ledger(dir, verify.Options{Key: key})
			if err != nil || r.Status != c.status {
				t.Fatalf("%v, %v; want %v", r, err, c.status)
			}
			if r.Fault != nil && (r.Fault.Cell != c.cell || r.Fault.Seq != c.seq || r.Fault.Seal != c.seal) {
				t.Errorf("%v; want cell %q, entry %d, seal %d", r, c.cell, c.seq, c.seal)
			}
			// Whatever was done, it is found against a checkpoint kept elsewhere,
			// but for what was only added.
			r, err = verify.Ledger(dir, verify.Options{Key: key, Since: &clean.Checkpoint})
			if added := strings.HasSuffix(c.name, "appended") && !strings.Contains(c.name, "cut"); err != nil || (r.Status < verify.Truncated && !added) {
				t.Errorf("against a checkpoint: %v, %v", r, err)
			}
		})
	}
}

// resign signs every seal with another key.
func resign(t testing.TB, f *frames, k *seal.Signer) {
	t.Helper()
	prev := entry.SealsGenesis()
	for i, raw := range f.seals {
		e, s, err := seal.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		e.Prev = prev
		if f.seals[i], err = k.Sign(e, s); err != nil {
			t.Fatal(err)
		}
		prev = sumOf(f.seals[i])
	}
}

// Bits all over both files: a flip never passes, and never makes verify panic.
func TestFlippedBitsAreFound(t *testing.T) {
	dir := testDir(t)
	key := written(t, dir)
	for _, path := range []string{journal0(dir), filepath.Join(dir, "seals")} {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// Odd, so that each place of a byte gets its turn; another start in each
		// run, so that each byte does.
		step := 17
		if len(whole) > 8<<10 {
			step = 293 // a seal is mostly its signatures, which seal's own test flips
		}
		start := rand.IntN(step)
		t.Logf("from byte %d, every %d", start, step)
		for i := start; i < len(whole); i += step {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << (i % 8)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if r, err := verify.Ledger(dir, verify.Options{Key: key}); err == nil && r.Status < verify.Truncated {
				t.Fatalf("byte %d of %s: %v", i, path, r)
			}
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A state directory that was rolled back as a whole verifies by itself, and is
// found against a checkpoint.
func TestRollback(t *testing.T) {
	dir := testDir(t)
	key := written(t, dir)
	old := takeApart(t, dir)
	l := mustOpen(t, dir, ledger.Options{})
	mustAppend(t, l, "a", "what must not be forgotten")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	now, err := verify.Ledger(dir, verify.Options{Key: key})
	if err != nil || now.Status != verify.Valid {
		t.Fatal(now, err)
	}
	since, err := verify.ParseCheckpoint(now.Checkpoint.String())
	if err != nil || since != now.Checkpoint {
		t.Fatal(since, err)
	}
	old.put(t, dir)
	if r, err := verify.Ledger(dir, verify.Options{Key: key}); err != nil || r.Status != verify.Valid {
		t.Fatal(r, err)
	}
	if r, err := verify.Ledger(dir, verify.Options{Key: key, Since: &since}); err != nil || r.Status != verify.Truncated {
		t.Fatal(r, err)
	}
	// It goes on from there, with the real key: a fork.
	l = mustOpen(t, dir, ledger.Options{})
	mustAppend(t, l, "a", "another story")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := verify.Ledger(dir, verify.Options{Key: key, Since: &since}); err != nil || r.Status != verify.Forked {
		t.Fatal(r, err)
	}
	for _, s := range []string{"", "1", "0." + strings.Repeat("0", 64) + "." + strings.Repeat("0", 64), "1.x.y", "+1.a.b"} {
		if _, err := verify.ParseCheckpoint(s); err == nil {
			t.Errorf("%q is no checkpoint", s)
		}
	}
}

func TestStatusesOfWhatIsNotALedger(t *testing.T) {
	dir := testDir(t)
	if r, err := verify.Ledger(dir, verify.Options{}); err == nil || r.Status != verify.CannotRead {
		t.Errorf("missing: %v, %v", r, err)
	}
	l := mustOpen(t, dir, ledger.Options{})
	if r, err := verify.Ledger(dir, verify.Options{}); err != nil || r.Status != verify.Empty || !r.Live {
		t.Errorf("empty: %v, %v", r, err)
	}
	mustAppend(t, l, "a", "x")
	r, err := verify.Ledger(dir, verify.Options{})
	if err != nil || r.Status != verify.UnsignedTail || r.Unsigned != 1 || !strings.Contains(r.String(), "nothing is signed") {
		t.Errorf("unsigned: %v, %v", r, err)
	}
	if err := l.EndCell("a"); err != nil {
		t.Fatal(err)
	}
	if r, err := verify.Ledger(dir, verify.Options{}); err != nil || r.Status != verify.Valid {
		t.Errorf("sealed, and still open: %v, %v", r, err)
	}
	mustAppend(t, l, "a", "y")
	if r, err := verify.Ledger(dir, verify.Options{}); err != nil || !strings.HasPrefix(r.String(), "valid up to 1.") || !strings.Contains(r.String(), "tail unsigned") {
		t.Errorf("a tail: %v, %v", r, err)
	}
	_ = l.Close()
	if err := os.WriteFile(filepath.Join(dir, "journal", "README"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := verify.Ledger(dir, verify.Options{}); err != nil || r.Status != verify.Altered {
		t.Errorf("an alien file: %v, %v", r, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "..", "keys")); err != nil {
		t.Fatal(err)
	}
	if r, err := verify.Ledger(dir, verify.Options{}); err == nil || r.Status != verify.CannotRead {
		t.Errorf("no key: %v, %v", r, err)
	}
}

// Verify while 8 writers write: never a fault.
func TestVerifyLive(t *testing.T) {
	dir := testDir(t)
	l := mustOpen(t, dir, ledger.Options{SegmentBytes: 2 << 10, JournalBytes: 16 << 10})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 8)
	// Verify reads all that there is: writers that are faster than it would have the last of
	// many rounds never end, so that each round lets some entries through.
	turns := make(chan struct{}, 200)
	for w := range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-ctx.Done():
					return
				case <-turns:
				}
				if _, err := l.Append(context.Background(), ledger.Entry{Cell: fmt.Sprint("c", w), Body: note("x")}); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	for rounds, seen := 0, uint64(0); rounds < 30 || seen < 1000; rounds++ {
		for len(turns) < cap(turns) {
			turns <- struct{}{}
		}
		r, err := verify.Ledger(dir, verify.Options{})
		if err != nil || r.Fault != nil {
			t.Errorf("%v, %v", r, err)
			break
		}
		seen = r.Entries
	}
	cancel()
	for range 8 {
		<-done
	}
	_ = l.Close()
	if r, err := verify.Ledger(dir, verify.Options{}); err != nil || r.Status != verify.Valid {
		t.Errorf("%v, %v", r, err)
	}
}
