// Package selftest decides whether this host's walls are proved: once for each
// state of Skep's programs and of the running kernel (L10).
//
// Its laws:
//   - Nothing is proved until every wall gave its one answer, in a cell that was
//     built as every other.
//   - What was proved holds for exactly these programs and this start of the kernel.
//     A proof that cannot be read proves nothing.
//   - A failure is never kept: the next cell asks again.
package selftest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"skep.dev/skep/internal/cell/prove"
)

// Proof is what was proved, and of what.
type Proof struct {
	At       time.Time `json:"at"`
	Kernel   string    `json:"kernel"` // its release
	Boot     string    `json:"boot"`   // the id of its start: its parameters may be others next time
	Programs []Program `json:"programs"`
	Walls    []string  `json:"walls"`
}

// Program is one file as it was. The kernel alone sets a ctime.
type Program struct {
	Path  string `json:"path"`
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"` // bytes
	Ctime int64  `json:"ctime"`
}

// Test is the self-test of one host.
type Test struct {
	File     string   // where the proof is kept
	Programs []string // that the walls are made by; their paths
	Now      func() time.Time

	mu   sync.Mutex
	held *Proof
}

// Runner runs the proving program in a cell and returns what it wrote.
type Runner func(ctx context.Context) (output string, err error)

// Walls knows whether this host's walls are proved (L10); run makes the proof.
type Walls interface {
	Held(ctx context.Context, run Runner) (p Proof, fresh bool, err error)
}

// Told is what came of a proof that was just made, for the ledger.
func (p Proof) Told(err error) string {
	if err != nil {
		return "self-test: " + err.Error()
	}
	return "self-test: every wall holds: " + strings.Join(p.Walls, ", ")
}

// Held returns the proof that holds now. If there is none, run makes it, and fresh
// says so. An error names the wall that does not hold, or why it is not known.
func (t *Test) Held(ctx context.Context, run Runner) (p Proof, fresh bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held != nil { // neither the programs that run nor the kernel change below us
		return *t.held, false, nil
	}
	now, err := t.state()
	if err != nil {
		return Proof{}, false, err
	}
	if kept, err := read(t.File); err == nil && kept.covers(now) {
		t.held = &kept
		return kept, false, nil
	}
	output, err := run(ctx)
	if err == nil {
		err = prove.Judge(output)
	}
	if err != nil {
		return Proof{}, true, errors.Join(err, forget(t.File))
	}
	for _, w := range prove.Walls() {
		now.Walls = append(now.Walls, w.Name)
	}
	now.At = t.Now().UTC()
	if err := write(t.File, now); err != nil {
		return Proof{}, true, err
	}
	t.held = &now
	return now, true, nil
}

// state is what a proof would be about.
func (t *Test) state() (Proof, error) {
	var p Proof
	for file, to := range map[string]*string{
		"/proc/sys/kernel/osrelease": &p.Kernel, "/proc/sys/kernel/random/boot_id": &p.Boot,
	} {
		raw, err := os.ReadFile(file)
		if err != nil {
			return Proof{}, fmt.Errorf("ask which kernel runs: %w", err)
		}
		*to = strings.TrimSpace(string(raw))
	}
	for _, path := range t.Programs {
		info, err := os.Stat(path)
		if err != nil {
			return Proof{}, fmt.Errorf("look at a program of Skep: %w", err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return Proof{}, fmt.Errorf("look at a program of Skep: %w", fs.ErrInvalid)
		}
		p.Programs = append(p.Programs, Program{path, st.Ino, st.Size, st.Ctim.Nano()})
	}
	return p, nil
}
