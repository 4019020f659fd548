package merge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/merge/journal"
	"skep.dev/skep/internal/sys"
)

// Root is one granted root, opened by the caller with its own rights. The file
// stays the caller's.
type Root struct {
	Path string   // on the host, as it is shown and hashed
	Dir  *os.File // the directory; of granted files the one that holds them
}

// Layer is what a merge needs of a layer process: the difference once more,
// and contents. *layer.Client has it.
type Layer interface {
	snapshot.Walker
	Open(ctx context.Context, side snapshot.Side, grant int, path string) (*os.File, error)
}

// Request is one merge. All fields but WithActive, Planned and Step are needed.
type Request struct {
	Roots []Root // by grant
	Layer Layer
	Judge snapshot.Judge
	// Hash is what the person read, 12 to 64 hex digits.
	Hash string
	// WithActive names active paths (S5a) that are to be merged too, on the
	// host or below a grant; a directory names what is below it.
	WithActive []string
	StateDir   string // the user's own state: merges/ is made in it, 0700
	// Planned is called with what will be merged, before anything of it is done; an
	// error merges nothing. It may be nil.
	Planned func(Result) error
	// Step is called before everything that changes something, for progress, and for
	// tests of crashes and full disks: its error is as good as the kernel's. It may be nil.
	Step func(name string) error
}

// Result is what a merge did.
type Result struct {
	Hash    string // in full
	Merged  []Path // every path that it applied, for the ledger
	LeftOut []LeftOut
}

// Path is one applied path.
type Path struct {
	Path     string // on the host
	Op       snapshot.Op
	Narrowed bool // it got fewer permissions than the cell gave it
}

// MovedError says that the difference is not the one that was read. It holds
// the new one, to be shown (S12).
type MovedError struct {
	Difference *snapshot.Difference
	Given      string
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("the difference is no longer %s, it is %s now: read it again, then merge that", e.Given, e.Difference.Hash[:snapshot.MinHashPrefix])
}

// Apply merges the difference that req.Hash names, or nothing. Where a crash
// stops it, Recover finishes or undoes it.
func Apply(ctx context.Context, req Request) (Result, error) {
	unlock, err := lock(req.StateDir, true)
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	if _, err := recoverAll(req.StateDir, time.Now(), nil); err != nil {
		return Result{}, fmt.Errorf("an earlier merge is not finished: %w", err)
	}
	grants := make([]string, len(req.Roots))
	for i, r := range req.Roots {
		grants[i] = r.Path
	}
	d, err := snapshot.Diff(ctx, req.Layer, grants, req.Judge)
	if err != nil {
		return Result{}, err
	}
	same, err := snapshot.MatchHash(d.Hash, req.Hash)
	if err != nil {
		return Result{}, err
	}
	if !same {
		return Result{}, &MovedError{Difference: d, Given: req.Hash}
	}
	if name := unmatched(d, req.WithActive); name != "" {
		return Result{}, fmt.Errorf("--with-active names %q, which the difference does not have", name)
	}
	p := makePlan(d, req.WithActive)
	result := p.result()
	if req.Planned != nil {
		if err := req.Planned(result); err != nil {
			return Result{}, err
		}
	}
	if len(p.units)+len(p.dirs) == 0 {
		return result, nil
	}
	t := &transaction{
		dir: filepath.Join(mergesDir(req.StateDir), d.Hash), hash: d.Hash,
		units: p.units, dirs: p.dirs, step: req.Step,
	}
	for _, r := range req.Roots {
		t.roots = append(t.roots, &root{dir: r.Dir, path: r.Path})
	}
	t.content = func(ctx context.Context, u, n int) (*os.File, error) {
		return req.Layer.Open(ctx, snapshot.LayerSide, t.units[u].Root, t.units[u].After[n].Entry)
	}
	// The same hash again means that the earlier merge was taken back by hand.
	if err := os.RemoveAll(t.dir); err != nil {
		return Result{}, err
	}
	if err := t.run(ctx); err != nil {
		return Result{}, err
	}
	return result, nil
}

func (p *plan) result() Result {
	r := Result{Hash: p.d.Hash, LeftOut: p.left}
	for i := range p.d.Entries {
		if p.reasons[i] != "" {
			continue
		}
		e := &p.d.Entries[i]
		narrowed := e.Layer.Type != snapshot.Absent && snapshot.MergedMode(e.Base, e.Layer) != e.Layer.Mode
		r.Merged = append(r.Merged, Path{Path: p.d.FullPath(e), Op: e.Op(), Narrowed: narrowed})
	}
	return r
}

// UndoFor is how long the old contents of a merge are kept (S4).
const UndoFor = 30 * 24 * time.Hour

func mergesDir(state string) string { return filepath.Join(state, "merges") }

// errBusy says that another process of this user is merging.
var errBusy = errors.New("another merge is running")

// lock makes the directory and holds it for this process alone.
func lock(state string, wait bool) (unlock func(), err error) {
	dir := mergesDir(state)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	held := true
	if wait {
		err = sys.LockExclusive(f)
	} else {
		held, err = sys.TryLockExclusive(f)
	}
	if err == nil && !held {
		err = errBusy
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

const undoPrefix = "undo-"

// Undoable completes the hash (12 to 64 hex digits) of a merge that can be taken back.
func Undoable(stateDir, hash string) (full string, err error) { return findMerge(stateDir, hash) }

// Undo takes the merge of hash (12 to 64 hex digits) back, all or nothing:
// every path must still be as the merge left it. planned is called before anything of
// it is done; an error changes nothing. step is that of a [Request]. Both may be nil.
func Undo(ctx context.Context, stateDir, hash string, planned func() error, step func(name string) error) error {
	unlock, err := lock(stateDir, true)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := recoverAll(stateDir, time.Now(), nil); err != nil {
		return fmt.Errorf("an earlier merge is not finished: %w", err)
	}
	full, err := findMerge(stateDir, hash)
	if err != nil {
		return err
	}
	dir := filepath.Join(mergesDir(stateDir), full)
	h, err := journal.Read(dir)
	if err != nil {
		return err
	}
	if h.Phase != journal.Closed {
		return fmt.Errorf("the merge of %s has no finished record", full[:snapshot.MinHashPrefix])
	}
	t, err := reopen(filepath.Join(mergesDir(stateDir), undoPrefix+full), h)
	if err != nil {
		return err
	}
	defer t.closeRoots()
	if planned != nil {
		if err := planned(); err != nil {
			return err
		}
	}
	// What an undo of the same hash has left: it was merged again since.
	if err := os.RemoveAll(t.dir); err != nil {
		return err
	}
	t.undoes, t.step = full, step
	for i := range t.units {
		u := &t.units[i]
		u.Before, u.After, u.New = u.After, u.Before, journal.Object{}
	}
	for i := range t.dirs {
		t.dirs[i].Before, t.dirs[i].After = t.dirs[i].After, t.dirs[i].Before
	}
	t.content = func(_ context.Context, u, n int) (*os.File, error) {
		return os.Open(filepath.Join(dir, oldName, savedName(u, n)))
	}
	return t.run(ctx)
}

// findMerge completes a prefix.
func findMerge(stateDir, hash string) (string, error) {
	entries, err := os.ReadDir(mergesDir(stateDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	found := ""
	for _, e := range entries {
		if len(e.Name()) != 64 || strings.HasPrefix(e.Name(), undoPrefix) {
			continue
		}
		same, err := snapshot.MatchHash(e.Name(), hash)
		if err != nil {
			return "", err
		}
		if same && found != "" {
			return "", fmt.Errorf("two merges begin with %s: give more digits", hash)
		}
		if same {
			found = e.Name()
		}
	}
	if found == "" {
		return "", fmt.Errorf("no merge of %s can be taken back: it was never made here, was taken back, or is older than 30 days", hash)
	}
	return found, nil
}
