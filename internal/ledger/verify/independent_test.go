package verify_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/verify"
)

// The verifier in another language agrees with ours, on a good ledger and on
// bad ones (field report L03).
func TestIndependentVerifier(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine: ", err)
	}
	run := func(dir string) (int, string) {
		out, err := exec.Command(python, "../../../docs/verify/verify.py", dir, filepath.Join(dir, "..", "keys", "ledger.pub")).CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode(), string(out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return 0, string(out)
	}
	dir := testDir(t)
	key := written(t, dir)
	l := mustOpen(t, dir, ledger.Options{})
	mustAppend(t, l, "c", "names with \xff, \x00, \u2028, \x7f, é, 🐝, \"quotes\" and \\ and \x1b")
	mustAppend(t, l, "c", "line\nend\r\t\b\f")
	if code, out := run(dir); code != int(verify.UnsignedTail) {
		t.Errorf("a tail: %d, %s", code, out)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if code, out := run(dir); code != int(verify.Valid) {
		t.Errorf("good: %d, %s", code, out)
	}
	good := takeApart(t, dir)
	for name, do := range map[string]func(*frames){
		"altered":    func(f *frames) { f.journal[3] = slices.Concat(f.journal[3][:40], []byte("X"), f.journal[3][41:]) },
		"cut":        func(f *frames) { f.journal = f.journal[:9] },
		"deleted":    func(f *frames) { f.journal = slices.DeleteFunc(f.journal, isOf("a")) },
		"forked":     func(f *frames) { f.journal = slices.Insert(f.journal, 3, f.journal[2]) },
		"no seals":   func(f *frames) { f.seals = nil },
		"seal cut":   func(f *frames) { f.seals = slices.Delete(f.seals, 1, 2) },
		"seal twice": func(f *frames) { f.seals = slices.Insert(f.seals, 1, f.seals[0]) },
		"swapped":    func(f *frames) { swapNames(f.journal) },
		"empty":      func(f *frames) { f.journal, f.seals = nil, nil },
	} {
		f := frames{slices.Clone(good.journal), slices.Clone(good.seals)}
		do(&f)
		f.put(t, dir)
		ours, err := verify.Ledger(dir, verify.Options{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		if code, out := run(dir); code != int(ours.Status) {
			t.Errorf("%s: %d, %s; ours says %v", name, code, out, ours)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "journal")); err != nil {
		t.Fatal(err)
	}
	if code, out := run(dir); code == 0 {
		t.Errorf("no journal: %d, %s", code, out)
	}
}
