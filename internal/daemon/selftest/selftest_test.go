package selftest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/cell/prove"
)

// host is a self-test whose program is a file of the test's.
type host struct {
	*Test
	runs   int
	output string
	err    error
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	h := &host{Test: &Test{File: filepath.Join(dir, "selftest.json"), Programs: []string{program}, Now: time.Now}}
	for _, w := range prove.Walls() {
		h.output += w.Name + ": " + w.Want + "\n"
	}
	return h
}

// again is the same host with a skepd that starts anew.
func (h *host) again() { h.Test = &Test{File: h.File, Programs: h.Programs, Now: h.Now} }

func (h *host) ask() error {
	_, _, err := h.Held(context.Background(), func(context.Context) (string, error) {
		h.runs++
		return h.output, h.err
	})
	return err
}

// expect asks, and demands how often the program has run by now.
func (h *host) expect(t *testing.T, runs int, what string) {
	t.Helper()
	if err := h.ask(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if h.runs != runs {
		t.Errorf("%s: the program has run %d times, want %d", what, h.runs, runs)
	}
}

func TestProvedOnceForEachUpgrade(t *testing.T) {
	h := newHost(t)
	h.expect(t, 1, "first")
	h.expect(t, 1, "second cell")
	h.again()
	h.expect(t, 1, "another skepd")

	if err := os.WriteFile(h.Programs[0], []byte("two"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.again()
	h.expect(t, 2, "after an upgrade")

	kept, err := read(h.File)
	if err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(*Proof){
		func(p *Proof) { p.Kernel = "6.1.0" },
		func(p *Proof) { p.Boot = "another" },
		func(p *Proof) { p.Walls = p.Walls[1:] },
		func(p *Proof) { p.Programs = nil },
	} {
		other := kept
		change(&other)
		if err := write(h.File, other); err != nil {
			t.Fatal(err)
		}
		h.again()
		h.expect(t, 3+i, "another state")
	}
	for i, damage := range []string{"", "{}", "null", `{"at":1}`, "{\"hold\":true}"} {
		if err := os.WriteFile(h.File, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		h.again()
		h.expect(t, 7+i, "damaged")
	}
}

// A wall that does not hold is named, each time, and no older proof outlives it.
func TestFailureIsNeverKept(t *testing.T) {
	h := newHost(t)
	h.expect(t, 1, "good")
	if err := os.WriteFile(h.Programs[0], []byte("worse"), 0o755); err != nil {
		t.Fatal(err)
	}
	good := h.output
	h.output = strings.Replace(good, "EACCES", "done", 1)
	for range 2 {
		h.again()
		var m *prove.Missing
		if err := h.ask(); !errors.As(err, &m) || m.Wall.Name != "Landlock" {
			t.Fatalf("%v", err)
		}
	}
	if _, err := os.Stat(h.File); !os.IsNotExist(err) {
		t.Error("a proof is kept after a failure")
	}
	h.output, h.err = good, errors.New("no cell")
	if err := h.ask(); err == nil || h.runs != 4 {
		t.Errorf("a program that did not run proves: %v, %d runs", err, h.runs)
	}
	h.err = nil
	h.expect(t, 5, "good again")
}
