package merge

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func writeJournal(t *testing.T, dir string) {
	t.Helper()
	j, err := createJournal(dir)
	must(t, err)
	defer j.close()
	must(t, j.write(record{Begin: &begin{Version: journalVersion, Hash: "h", Roots: []journalRoot{{Path: "/w"}}}}))
	must(t, j.write(record{Units: []unit{{Path: "a"}, {Path: "b\xff"}}}))
	must(t, j.write(record{Phase: phaseBegun}))
	must(t, j.write(record{IDs: []objectID{{1, 2}}}))
	must(t, j.write(record{IDs: []objectID{{3, 4}}, Phase: phaseStaged}))
	must(t, j.write(record{Phase: phaseDone}))
}

// A journal that was cut (at every seventh byte, and not at all) reads as what was whole, and can be gone on
// with from there.
func TestTornJournal(t *testing.T) {
	dir := fastDir(t) // two syncs for each byte
	writeJournal(t, dir)
	whole, err := os.ReadFile(filepath.Join(dir, journalName))
	must(t, err)
	last := phaseNone
	for cut := 0; cut < len(whole)+7; cut += 7 {
		n := min(cut, len(whole))
		torn := filepath.Join(dir, strconv.Itoa(n))
		must(t, os.Mkdir(torn, 0o700))
		must(t, os.WriteFile(filepath.Join(torn, journalName), whole[:n], 0o600))
		h, err := readJournal(torn)
		must(t, err)
		if h.Phase < last {
			t.Fatalf("%d bytes say less than fewer do", n)
		}
		last = h.Phase
		if h.Phase >= phaseStaged && (h.Units[1].New != objectID{3, 4} || h.Units[1].Path != "b\xff") {
			t.Fatalf("%d bytes: %+v", n, h.Units)
		}
		j, err := reopenJournal(torn, h.size)
		must(t, err)
		must(t, j.write(record{Phase: phaseClosed}))
		j.close()
		if h, err = readJournal(torn); err != nil || h.Phase != phaseClosed {
			t.Fatalf("%d bytes, then closed: phase %d, %v", n, h.Phase, err)
		}
	}
	if last != phaseDone {
		t.Errorf("the whole journal says %d", last)
	}
}

func TestFlippedByteEndsTheJournal(t *testing.T) {
	dir := fastDir(t)
	writeJournal(t, dir)
	path := filepath.Join(dir, journalName)
	whole, err := os.ReadFile(path)
	must(t, err)
	for n := 0; n < len(whole); n += 5 {
		bad := append([]byte(nil), whole...)
		bad[n] ^= 0x55
		must(t, os.WriteFile(path, bad, 0o600))
		if h, err := readJournal(dir); err == nil && h.Phase == phaseDone {
			t.Fatalf("byte %d was flipped and nobody saw it", n)
		}
	}
}

// While a merge runs, the recovery of another command leaves it alone.
func TestRecoverWaitsForNobody(t *testing.T) {
	state := t.TempDir()
	unlock, err := lock(state, true)
	must(t, err)
	dir := filepath.Join(mergesDir(state), "running")
	must(t, os.Mkdir(dir, 0o700))
	if got, err := Recover(state); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error("a running merge was cleared away")
	}
	unlock()
	_, err = Recover(state)
	must(t, err)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a merge without a plan stays: %v", err)
	}
}
