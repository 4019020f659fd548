package ledger

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/verify"
)

// crashed returns a copy of a ledger with three acknowledged entries as a power
// cut leaves it: nothing closed, nothing sealed.
func crashed(t testing.TB) (dir string, journal []byte) {
	t.Helper()
	src := testDir(t)
	l := mustOpen(t, src, Options{})
	for i := range 3 {
		mustAppend(t, l, "a", fmt.Sprint("entry ", i))
	}
	journal, err := os.ReadFile(journal0(src))
	if err != nil {
		t.Fatal(err)
	}
	return src, journal
}

func plant(t testing.TB, src string, journal, seals []byte) string {
	t.Helper()
	dir := testDir(t)
	for _, d := range []string{filepath.Join(dir, "journal"), filepath.Join(dir, "..", "keys")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	key, err := os.ReadFile(filepath.Join(src, "..", "keys", "ledger.key"))
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string][]byte{filepath.Join(dir, "..", "keys", "ledger.key"): key, journal0(dir): journal, filepath.Join(dir, "seals"): seals} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// D11: a fourth entry torn at each byte, as a short file, as zeros, and as
// noise after the tear. The three acknowledged ones stay, the recovery is
// signed, and says how much was dropped.
func TestTornAtEveryByte(t *testing.T) {
	src, whole := crashed(t)
	three := whole
	last := bytes.Clone(whole[bytes.LastIndex(whole, []byte(`{"agent"`))-8:])
	start := rand.IntN(11)
	t.Logf("from byte %d, every 11", start)
	for cut := range len(last) {
		if cut > entry.HeadSize+2 && cut%11 != start {
			continue // the head at each byte; the rest in turn, another in each run
		}
		for name, tail := range map[string][]byte{
			"short": last[:cut],
			"zeros": append(bytes.Clone(last[:cut]), make([]byte, len(last)-cut+100)...),
			"noise": append(bytes.Clone(last[:cut]), bytes.Repeat([]byte{0xa5}, 5000)...),
		} {
			what := fmt.Sprintf("%s at byte %d", name, cut)
			dir := plant(t, src, append(bytes.Clone(three), tail...), nil)
			l, err := Open(dir, Options{disk: goodDisk()})
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			got := readAll(t, dir, Filter{})
			if len(got) != 4 || got[3].Cell != HostCell {
				t.Fatalf("%s: %d entries", what, len(got))
			}
			body, err := got[3].Decode()
			if err != nil {
				t.Fatal(err)
			}
			r := body.(*kind.Recovery)
			if r.Dropped != uint64(len(tail)) || r.Position != uint64(len(three)) || r.Unsealed != 3 || r.Cells != 1 {
				t.Errorf("%s: %+v", what, r)
			}
			if kept, err := os.ReadFile(filepath.Join(dir, r.Kept)); len(tail) > 0 && (err != nil || !bytes.Equal(kept, tail)) {
				t.Errorf("%s: the torn bytes were not kept: %v", what, err)
			}
			// It is signed at once, while the daemon runs.
			if r, err := verify.Ledger(dir, verify.Options{}); err != nil || r.Status != verify.Valid {
				t.Fatalf("%s: %v, %v", what, r, err)
			}
			if seq := mustAppend(t, l, "a", "goes on"); seq != 4 {
				t.Fatalf("%s: seq %d", what, seq)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A seal torn at each byte: its segment is sealed again.
func TestTornSealAtEveryByte(t *testing.T) {
	src, journal := crashed(t)
	dir := plant(t, src, journal, nil)
	l := mustOpen(t, dir, Options{})
	_ = l.Close()
	journal, err := os.ReadFile(journal0(dir))
	if err != nil {
		t.Fatal(err)
	}
	seals, err := os.ReadFile(filepath.Join(dir, "seals"))
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut < len(seals); cut += 1013 {
		dir := plant(t, src, journal, seals[:cut])
		acked{"a": 3, HostCell: 1}.reopen(t, dir, "", fmt.Sprintf("seals cut at %d", cut))
	}
}

// What no torn write can leave is refused, not repaired: it is evidence.
func TestDamageBeforeTheLastSealIsRefused(t *testing.T) {
	dir := testDir(t)
	l := mustOpen(t, dir, Options{})
	mustAppend(t, l, "a", "sealed")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(journal0(dir))
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{"cut": whole[:len(whole)-1], "gone": nil} {
		if err := os.WriteFile(journal0(dir), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := Open(dir, Options{}); err == nil {
			_ = l.Close()
			t.Errorf("%s: it was opened", name)
		} else if !strings.Contains(err.Error(), "skep ledger verify") {
			t.Errorf("%s: %v", name, err)
		}
		if now, _ := os.ReadFile(journal0(dir)); !bytes.Equal(now, bad) {
			t.Errorf("%s: it was changed", name)
		}
	}
}

func journal0(dir string) string { return filepath.Join(dir, "journal", entry.PartName(0)) }

const childDir = "SKEP_LEDGER_TEST_CHILD"

// TestChildWrites is not a test: it is the program that TestKilled kills.
func TestChildWrites(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("only as a child of TestKilled")
	}
	l, err := Open(dir, Options{SegmentBytes: 4 << 10, JournalBytes: 64 << 10})
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(3)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				var b kind.Body = kind.FlowIntent{Destination: "example.org", Port: 443, Decision: "allow"}
				if i%3 == 0 {
					b = kind.Exec{Path: "/bin/true", Decision: "allow"} // survives a killed process too
				}
				cell := fmt.Sprint("c", w)
				seq, err := l.Append(context.Background(), Entry{Cell: cell, Body: b})
				if err != nil {
					fmt.Println("append:", err)
					os.Exit(3)
				}
				mu.Lock()
				fmt.Println("ack", cell, seq)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// kill -9 of a process that writes, at random moments, again and again on one
// ledger: no acknowledged entry is lost, and the next one starts.
func TestKilled(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	dir := testDir(t)
	total := acked{}
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChildWrites$", "-test.v")
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		die := 1 + rand.IntN(400)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); {
			var cell string
			var seq uint64
			if _, err := fmt.Sscanf(lines.Text(), "ack %s %d", &cell, &seq); err != nil {
				if strings.HasPrefix(lines.Text(), "open:") || strings.HasPrefix(lines.Text(), "append:") {
					t.Error(lines.Text())
				}
				continue
			}
			total[cell] = max(total[cell], seq)
			if n++; n == die {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		if r, err := verify.Ledger(dir, verify.Options{}); err != nil || r.Status > verify.Truncated {
			t.Fatalf("round %d: %v, %v", round, r, err)
		}
		total.check(t, dir, fmt.Sprint("round ", round))
	}
	total.reopen(t, dir, "", "after all")
}
