package entry

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// SealsGenesis is the prev of the first seal.
func SealsGenesis() Hash { return Genesis("seals") }

// PartName is the name of the journal file that begins at a position.
func PartName(base uint64) string { return fmt.Sprintf("%016x", base) }

// Part is one file of the journal.
type Part struct {
	Path string
	Base uint64 // position of its first byte
	Size uint64
}

// End is the position after the file's last byte.
func (p Part) End() uint64 { return p.Base + p.Size }

// Parts lists the journal of dir in order. A name that is no position is an
// error: nothing else has a place there.
func Parts(dir string) ([]Part, error) {
	names, err := os.ReadDir(filepath.Join(dir, "journal")) // sorted by name, and so by position
	if err != nil {
		return nil, err
	}
	var out []Part
	for _, n := range names {
		base, err := strconv.ParseUint(n.Name(), 16, 63)
		if err != nil || PartName(base) != n.Name() {
			return nil, fmt.Errorf("%w: %q is not the name of a journal file", ErrAlien, n.Name())
		}
		info, err := n.Info()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%w: %q is not a file", ErrAlien, n.Name())
		}
		out = append(out, Part{Path: filepath.Join(dir, "journal", n.Name()), Base: base, Size: uint64(info.Size())})
	}
	return out, nil
}

// ErrAlien means that a name in the directory is none of a ledger.
var ErrAlien = errors.New("not a part of a ledger")

// Walk calls each with every frame of the journal files from position from on,
// in order. limit ends the last file early, so that what is being written
// meanwhile is not read. Its error is that of each, of [Reader] at the
// position broken, with the bytes of a frame whose
// CRC is wrong, or ErrGap.
func Walk(files []Part, from, limit uint64, each func(pos uint64, payload []byte) error) (broken uint64, bad []byte, err error) {
	for i, p := range files {
		if i > 0 && p.Base != files[i-1].End() {
			return files[i-1].End(), nil, fmt.Errorf("%w: %s does not begin where the file before it ends", ErrGap, filepath.Base(p.Path))
		}
		if p.End() <= from {
			continue
		}
		if pos, bad, err := walkPart(p, max(from, p.Base), min(limit, p.End()), each); err != nil {
			return pos, bad, err
		}
	}
	return 0, nil, nil
}

// ErrGap means that a journal file does not begin where the one before ends.
var ErrGap = errors.New("journal files do not join")

func walkPart(p Part, from, to uint64, each func(uint64, []byte) error) (uint64, []byte, error) {
	if from >= to {
		return 0, nil, nil
	}
	f, err := os.Open(p.Path)
	if err != nil {
		return from, nil, err
	}
	defer func() { _ = f.Close() }()
	r := NewReader(io.NewSectionReader(f, int64(from-p.Base), int64(to-from)), from)
	for {
		pos := r.Position()
		payload, err := r.Next()
		if errors.Is(err, io.EOF) {
			return 0, nil, nil
		}
		if err != nil {
			return pos, payload, err
		}
		if err := each(pos, payload); err != nil {
			return pos, nil, err
		}
	}
}
