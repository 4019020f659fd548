// Package verify proves a ledger directory against its signatures, or names the
// first fault (D8).
//
// Its laws:
//   - It needs no daemon and no private key, writes nothing, takes no lock, and
//     takes every byte that it reads for hostile.
//   - What was sealed cannot change, be cut, moved or doubled and still be valid;
//     a good signature is never enough without the chain that it signs.
//   - It streams: the seals once, then the journal once, in memory that grows
//     with the number of cells, by some 220 bytes each, and not with the number
//     of entries.
//   - The exit statuses and the words of a fault are what scripts rely on: a new
//     fault gets one of the nine statuses, not a new one.
package verify

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/seal"
	"skep.dev/skep/internal/sys"
)

// Options of [Ledger].
type Options struct {
	Key   *seal.Public // nil: the public half beside the ledger, which proves less
	Since *Checkpoint  // a checkpoint that the record must hold
}

// Ledger checks the ledger in dir against its signatures and returns the first
// fault. It needs no daemon and no private key. It reads the seals, then the
// journal, each once, in memory that grows only with the number of cells.
// The error is that of reading; then the status is CannotRead.
func Ledger(dir string, opts Options) (Report, error) {
	v := &verifier{dir: dir, opts: opts, key: opts.Key, cells: map[string]*proof{}}
	err := v.run()
	v.report.Cells = uint64(len(v.cells))
	var f *Fault
	switch {
	case errors.As(err, &f):
		v.report.Status, v.report.Fault = f.Status, f
		return v.report, nil
	case err != nil:
		v.report.Status = CannotRead
		return v.report, fmt.Errorf("verify the ledger %s: %w", dir, err)
	}
	return v.report, nil
}

type verifier struct {
	dir    string
	opts   Options
	key    *seal.Public
	report Report
	cells  map[string]*proof
	sealed uint64 // length of the seals file when the first pass ended
	at     uint64 // position of the last seal
}

// proof is what is known of one cell's chain.
type proof struct {
	seq     uint64 // of the last entry that was walked
	hash    entry.Hash
	last    uint64 // of the last entry that a seal covers
	lastIs  entry.Hash
	segment uint64
	seal    entry.Hash // the cell's last seal
}

func (v *verifier) cell(name string) *proof {
	p := v.cells[name]
	if p == nil {
		p = &proof{hash: entry.Genesis(name)}
		v.cells[name] = p
	}
	return p
}

func (v *verifier) run() error {
	if _, err := os.Stat(v.dir); err != nil {
		return err
	}
	live, err := isLive(v.dir)
	if err != nil {
		return err
	}
	v.report.Live = live
	// The seals come first: what they cover is in the journal by then, also
	// while a daemon goes on writing.
	if err := v.seals(); err != nil {
		return err
	}
	if err := v.since(); err != nil {
		return err
	}
	if err := v.journal(); err != nil {
		return err
	}
	for _, p := range v.cells {
		v.report.Unsigned += p.seq - p.last
	}
	switch {
	case v.report.Entries == 0:
		v.report.Status = Empty
	case v.report.Unsigned > 0:
		v.report.Status = UnsignedTail
	}
	return nil
}

func isLive(dir string) (bool, error) {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	return sys.FileIsLocked(f)
}

// seals is the first pass: the chain of seals, their signatures, and that the
// segments of each cell join.
func (v *verifier) seals() error {
	f, err := openRegular(filepath.Join(v.dir, "seals"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := entry.NewReader(f, 0)
	prev := entry.SealsGenesis()
	for {
		raw, err := r.Next()
		n := v.report.Seals + 1
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, entry.ErrTorn) && v.report.Live:
			v.sealed = r.Position()
			return nil
		case errors.Is(err, entry.ErrTorn):
			return &Fault{Status: Truncated, Seal: n, Detail: "the last seal is cut short: a crash, which the daemon repairs at its start, or a cut"}
		case errors.Is(err, entry.ErrDamaged):
			return &Fault{Status: Altered, Seal: n, Detail: err.Error()}
		case err != nil:
			return err
		}
		if prev, err = v.oneSeal(raw, n, prev); err != nil {
			return err
		}
	}
}

func (v *verifier) oneSeal(raw []byte, n uint64, prev entry.Hash) (entry.Hash, error) {
	if v.key == nil {
		key, err := seal.LoadPublic(filepath.Join(filepath.Dir(filepath.Clean(v.dir)), "keys"))
		if err != nil {
			return prev, fmt.Errorf("no public key to verify with: %w", err)
		}
		v.key = key
	}
	if c := v.opts.Since; c != nil && v.key.ID() != c.Key {
		return prev, &Fault{Status: WrongKey, Detail: fmt.Sprintf("the checkpoint was signed by %.16s, and the key here is %.16s", c.Key, v.key.ID())}
	}
	e, s, err := v.key.Verify(raw)
	if err != nil {
		return prev, &Fault{Status: sealStatus(err), Cell: e.Cell, Seal: n, Detail: err.Error()}
	}
	fault := func(st Status, format string, a ...any) error {
		return &Fault{Status: st, Cell: e.Cell, Seal: n, Detail: fmt.Sprintf(format, a...)}
	}
	p := v.cell(e.Cell)
	hash, err := entry.ParseHash(s.Hash)
	switch {
	case err != nil:
		return prev, fault(Altered, "%v", err)
	case e.Seq > n:
		return prev, fault(Truncated, "the seals from %d to %d are missing", n, e.Seq-1)
	case e.Seq < n:
		return prev, fault(Forked, "seal %d is there twice", e.Seq)
	case e.Prev != prev:
		return prev, fault(Forked, "it is signed, and follows another seal than the one before it")
	case s.Segment != p.segment+1 || s.First != p.last+1 || s.Last < s.First || s.Count != s.Last-s.First+1 || s.Before != p.seal.String():
		return prev, fault(Forked, "it is signed, and does not join segment %d of its cell, which ended with entry %d", p.segment, p.last)
	case s.At < v.at:
		return prev, fault(Forked, "it is signed, and was cut at %d, before the seal before it", s.At)
	}
	p.segment, p.last, p.lastIs, p.seal = s.Segment, s.Last, hash, hashOf(raw)
	v.at = s.At
	v.report.Seals = n
	v.report.Checkpoint = Checkpoint{Seals: n, Hash: p.seal, Key: s.Key}
	if c := v.opts.Since; c != nil && c.Seals == n && c.Hash != p.seal {
		return prev, fault(Forked, "the checkpoint has another seal with this number")
	}
	return p.seal, nil
}

func sealStatus(err error) Status {
	switch {
	case errors.Is(err, seal.ErrKey):
		return WrongKey
	case errors.Is(err, entry.ErrVersion):
		return Unknown
	}
	return Altered
}

// since holds the record against a checkpoint from elsewhere.
func (v *verifier) since() error {
	if c := v.opts.Since; c != nil && v.report.Seals < c.Seals {
		return &Fault{Status: Truncated, Seal: v.report.Seals + 1,
			Detail: fmt.Sprintf("the checkpoint has seen %d seals, and here are %d: the record was rolled back or cut", c.Seals, v.report.Seals)}
	}
	return nil
}

// journal is the second pass: every entry follows the one before it, and the
// chain goes through what its last seal signed.
func (v *verifier) journal() error {
	files, err := entry.Parts(v.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if errors.Is(err, entry.ErrAlien) {
			return &Fault{Status: Altered, Detail: err.Error()}
		}
		return err
	}
	cuts, err := openCuts(v.dir, v.sealed)
	if err != nil {
		return err
	}
	defer cuts.close()
	if len(files) > 0 && files[0].Base != 0 {
		return &Fault{Status: Truncated, Detail: fmt.Sprintf("the journal begins at position %d, not at 0", files[0].Base)}
	}
	broken, bad, err := entry.Walk(files, 0, math.MaxUint64, func(pos uint64, payload []byte) error {
		cuts.upTo(pos, v.cells)
		return v.entry(payload)
	})
	switch {
	case errors.Is(err, entry.ErrTorn) && v.report.Live && broken >= files[len(files)-1].Base, err == nil:
	case errors.Is(err, entry.ErrTorn), errors.Is(err, entry.ErrGap):
		if f := v.missing(); f != nil {
			return f
		}
		return &Fault{Status: Truncated, Detail: err.Error() + ": a crash, which the daemon repairs at its start, or a cut"}
	case errors.Is(err, entry.ErrDamaged):
		f := &Fault{Status: Altered, Detail: err.Error()}
		if e, err := entry.Parse(bad); err == nil {
			f.Cell, f.Seq = e.Cell, e.Seq
		}
		return f
	default:
		return err
	}
	if f := v.missing(); f != nil {
		return f
	}
	if cuts.upTo(math.MaxUint64, v.cells); cuts.fault != nil {
		return cuts.fault
	}
	return nil
}

func (v *verifier) entry(payload []byte) error {
	e, err := parseStrict(payload)
	switch {
	case errors.Is(err, entry.ErrVersion):
		return &Fault{Status: Unknown, Cell: e.Cell, Seq: e.Seq, Detail: err.Error()}
	case err != nil:
		return &Fault{Status: Altered, Cell: e.Cell, Seq: e.Seq, Detail: err.Error()}
	case e.Kind == kind.KindSeal:
		return &Fault{Status: Altered, Cell: e.Cell, Seq: e.Seq, Detail: "a seal has no place in the journal"}
	}
	p := v.cell(e.Cell)
	fault := func(st Status, seq uint64, format string, a ...any) error {
		return &Fault{Status: st, Cell: e.Cell, Seq: seq, Detail: fmt.Sprintf(format, a...)}
	}
	switch {
	case e.Seq <= p.seq:
		return fault(Forked, e.Seq, "the chain has two entries with this number")
	case e.Seq > p.seq+1:
		return fault(Truncated, p.seq+1, "the entries from here to %d are missing", e.Seq-1)
	case e.Prev != p.hash && e.Seq == 1:
		return fault(Altered, 1, "its chain is not begun as that of this cell")
	case e.Prev != p.hash:
		return fault(Altered, e.Seq-1, "the entry after it names another hash")
	}
	p.seq, p.hash = e.Seq, hashOf(payload)
	if p.seq == p.last && p.hash != p.lastIs {
		return fault(Altered, e.Seq, "a seal signed another hash of it")
	}
	v.report.Entries++
	return nil
}

// missing returns the fault of the first cell, by name, whose sealed entries
// are not all there.
func (v *verifier) missing() *Fault {
	first := ""
	for name, p := range v.cells {
		if p.seq < p.last && (first == "" || name < first) {
			first = name
		}
	}
	if first == "" {
		return nil
	}
	p := v.cells[first]
	return &Fault{Status: Truncated, Cell: first, Seq: p.seq + 1, Detail: fmt.Sprintf("sealed entries from here to %d are missing", p.last)}
}
