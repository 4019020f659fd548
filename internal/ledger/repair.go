package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/seal"
)

// repair brings the chains to where the disk has them and cuts off what was
// torn (D11). It returns zeros if the ledger had been closed, or is new. What
// it cuts was never acknowledged: everything acknowledged lies before it in a
// file that was synced as a whole.
func (l *Ledger) repair() (kind.Recovery, error) {
	var found kind.Recovery
	last, err := l.recoverSeals(&found)
	if err != nil {
		return found, err
	}
	dir := filepath.Join(l.dir, "journal")
	files, err := entry.Parts(l.dir)
	if err != nil {
		return found, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if len(files) == 0 {
		if last.At > 0 {
			return found, fmt.Errorf("%w: its journal is gone", ErrDamaged)
		}
		files = []entry.Part{{Path: filepath.Join(dir, entry.PartName(0))}}
	}
	broken, _, err := entry.Walk(files, last.Unsealed, math.MaxUint64, func(pos uint64, payload []byte) error {
		return l.recoverEntry(&found, pos, payload)
	})
	tail := files[len(files)-1]
	end := tail.End()
	switch {
	case err == nil:
	case (errors.Is(err, entry.ErrTorn) || errors.Is(err, entry.ErrDamaged)) && broken >= tail.Base && broken >= last.At:
		end = broken
	default:
		return found, fmt.Errorf("%w: at position %d: %w", ErrDamaged, broken, err)
	}
	if end < last.At {
		return found, fmt.Errorf("%w: its journal ends at %d, and a seal covers it up to %d", ErrDamaged, end, last.At)
	}
	if l.file, err = l.opts.disk.open(tail.Path); err != nil {
		return found, err
	}
	if err := l.cutTorn(&found, tail, end); err != nil {
		return found, err
	}
	l.base, l.written, l.synced, l.cur.start = tail.Base, end, end, end
	found.Cells = uint64(len(l.open))
	if found.Unsealed > 0 || found.Dropped > 0 || found.SealsDropped > 0 {
		found.Position = end
	}
	// The names of the files, and entries that were written but not synced when
	// the last daemon ended, are durable before anything is built on them.
	return found, errors.Join(l.file.Sync(), l.opts.disk.syncDir(dir), l.opts.disk.syncDir(l.dir))
}

func (l *Ledger) recoverSeals(found *kind.Recovery) (kind.Seal, error) {
	var last kind.Seal
	s := l.sealer
	s.prev = entry.SealsGenesis()
	f, err := os.OpenFile(l.sealsPath(), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return last, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return last, err
	}
	r := entry.NewReader(f, 0)
	for {
		raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, entry.ErrTorn) || errors.Is(err, entry.ErrDamaged) {
			// A torn write has at most one batch of seals behind it.
			if uint64(info.Size())-r.Position() > maxSeals*8<<10 {
				return last, fmt.Errorf("%w: its seals: %w", ErrDamaged, err)
			}
			break
		}
		if err != nil {
			return last, err
		}
		if last, err = l.recoverSeal(raw); err != nil {
			return last, err
		}
	}
	s.size = r.Position()
	found.SealsDropped = uint64(info.Size()) - s.size
	if s.file, err = l.opts.disk.open(l.sealsPath()); err != nil {
		return last, err
	}
	if found.SealsDropped > 0 {
		return last, errors.Join(s.file.Truncate(int64(s.size)), s.file.Sync())
	}
	return last, nil
}

func (l *Ledger) recoverSeal(raw []byte) (kind.Seal, error) {
	s := l.sealer
	e, body, err := seal.Parse(raw)
	if err != nil {
		return body, fmt.Errorf("%w: seal %d: %w", ErrDamaged, s.seq+1, err)
	}
	if body.Key != l.key.Public().ID() {
		return body, fmt.Errorf("%w: seal %d: %w: the key in %s is not the one that sealed this ledger", ErrDamaged, e.Seq, seal.ErrKey, l.opts.Keys)
	}
	hash, err := entry.ParseHash(body.Hash)
	if err != nil || e.Seq != s.seq+1 || e.Prev != s.prev {
		return body, fmt.Errorf("%w: seal %d does not follow seal %d", ErrDamaged, e.Seq, s.seq)
	}
	s.seq, s.prev = e.Seq, sha256.Sum256(raw)
	l.chains[e.Cell] = &chain{
		cell: e.Cell, mark: mark{seq: body.Last, hash: hash},
		sealed: s.prev, segment: body.Segment + 1, first: body.Last + 1, agent: e.Agent,
	}
	return body, nil
}

// recoverEntry takes up an entry that no seal covers yet.
func (l *Ledger) recoverEntry(found *kind.Recovery, pos uint64, payload []byte) error {
	e, err := entry.Parse(payload)
	if err != nil {
		return err
	}
	c := l.chains[e.Cell]
	if c == nil {
		c = &chain{cell: e.Cell, segment: 1, first: 1, mark: mark{hash: entry.Genesis(e.Cell)}}
		l.chains[e.Cell] = c
	}
	if e.Seq < c.first {
		return nil
	}
	if e.Seq != c.seq+1 || e.Prev != c.hash {
		return fmt.Errorf("entry %d of cell %s does not follow entry %d", e.Seq, e.Cell, c.seq)
	}
	l.moveChain(c, &e, payload, pos)
	found.Unsealed++
	return nil
}

// cutTorn keeps the torn bytes in a file of their own, where there is room, and
// cuts them off the journal.
func (l *Ledger) cutTorn(found *kind.Recovery, tail entry.Part, end uint64) error {
	if end == tail.End() {
		return nil
	}
	src, err := os.Open(tail.Path)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	found.Dropped = tail.End() - end
	sum := sha256.New()
	torn := io.NewSectionReader(src, int64(end-tail.Base), int64(found.Dropped))
	if _, err := io.Copy(sum, torn); err != nil {
		return err
	}
	found.DroppedDigest = hex.EncodeToString(sum.Sum(nil))
	name := "torn-" + entry.PartName(end)
	if l.keepTorn(filepath.Join(l.dir, name), src, int64(end-tail.Base), int64(found.Dropped)) == nil {
		found.Kept = name
	}
	if err := l.file.Truncate(int64(end - tail.Base)); err != nil {
		return fmt.Errorf("cut the torn end off the journal: %w", err)
	}
	return nil
}

func (l *Ledger) keepTorn(path string, src io.ReaderAt, from, size int64) error {
	f, err := l.opts.disk.open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(f, 0), io.NewSectionReader(src, from, size))
	return errors.Join(err, f.Truncate(size), f.Sync(), f.Close())
}
