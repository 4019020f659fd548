package journal

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fastDir is on a tmpfs where there is one: each phase is synced.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "skep-journal-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func writeJournal(t *testing.T, dir string) {
	t.Helper()
	j, err := Create(dir)
	must(t, err)
	defer j.Close()
	must(t, j.Write(Record{Begin: &Begin{Version: Version, Hash: "h", Roots: []Root{{Path: "/w"}}}}))
	must(t, j.Write(Record{Units: []Unit{{Path: "a"}, {Path: "b\xff"}}}))
	must(t, j.Write(Record{Phase: Begun}))
	must(t, j.Write(Record{IDs: []Object{{1, 2}}}))
	must(t, j.Write(Record{IDs: []Object{{3, 4}}, Phase: Staged}))
	must(t, j.Write(Record{Phase: Done}))
}

// A journal that was cut (at every seventh byte, and not at all) reads as what was whole, and can be gone on
// with from there.
func TestTornJournal(t *testing.T) {
	dir := fastDir(t) // two syncs for each byte
	writeJournal(t, dir)
	whole, err := os.ReadFile(filepath.Join(dir, Name))
	must(t, err)
	last := None
	for cut := 0; cut < len(whole)+7; cut += 7 {
		n := min(cut, len(whole))
		torn := filepath.Join(dir, strconv.Itoa(n))
		must(t, os.Mkdir(torn, 0o700))
		must(t, os.WriteFile(filepath.Join(torn, Name), whole[:n], 0o600))
		h, err := Read(torn)
		must(t, err)
		if h.Phase < last {
			t.Fatalf("%d bytes say less than fewer do", n)
		}
		last = h.Phase
		if h.Phase >= Staged && (h.Units[1].New != Object{3, 4} || h.Units[1].Path != "b\xff") {
			t.Fatalf("%d bytes: %+v", n, h.Units)
		}
		j, err := Reopen(torn, h.Size)
		must(t, err)
		must(t, j.Write(Record{Phase: Closed}))
		j.Close()
		if h, err = Read(torn); err != nil || h.Phase != Closed {
			t.Fatalf("%d bytes, then closed: phase %d, %v", n, h.Phase, err)
		}
	}
	if last != Done {
		t.Errorf("the whole journal says %d", last)
	}
}

func TestFlippedByteEndsTheJournal(t *testing.T) {
	dir := fastDir(t)
	writeJournal(t, dir)
	path := filepath.Join(dir, Name)
	whole, err := os.ReadFile(path)
	must(t, err)
	for n := 0; n < len(whole); n += 5 {
		bad := append([]byte(nil), whole...)
		bad[n] ^= 0x55
		must(t, os.WriteFile(path, bad, 0o600))
		if h, err := Read(dir); err == nil && h.Phase == Done {
			t.Fatalf("byte %d was flipped and nobody saw it", n)
		}
	}
}
