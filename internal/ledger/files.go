package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"skep.dev/skep/internal/ledger/entry"
)

// sealsGenesis is the prev of the first seal.
func sealsGenesis() entry.Hash { return entry.Genesis("seals") }

// part is one file of the journal.
type part struct {
	path string
	base uint64 // position of its first byte
	size uint64
}

func (p part) end() uint64 { return p.base + p.size }

// parts lists the journal of dir in order. A name that is no position is an
// error: nothing else has a place there.
func parts(dir string) ([]part, error) {
	names, err := os.ReadDir(filepath.Join(dir, "journal")) // sorted by name, and so by position
	if err != nil {
		return nil, err
	}
	var out []part
	for _, n := range names {
		base, err := strconv.ParseUint(n.Name(), 16, 63)
		if err != nil || journalName(base) != n.Name() {
			return nil, fmt.Errorf("%w: %q is not the name of a journal file", errAlien, n.Name())
		}
		info, err := n.Info()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%w: %q is not a file", errAlien, n.Name())
		}
		out = append(out, part{path: filepath.Join(dir, "journal", n.Name()), base: base, size: uint64(info.Size())})
	}
	return out, nil
}

var errAlien = errors.New("not a part of a ledger")

// walk calls each with every frame of the journal files from position from on,
// in order. limit ends the last file early, so that what is being written
// meanwhile is not read. Its error is that of each, of [entry.Reader] at the
// position broken, with the bytes of a frame whose
// CRC is wrong, or errGap.
func walk(files []part, from, limit uint64, each func(pos uint64, payload []byte) error) (broken uint64, bad []byte, err error) {
	for i, p := range files {
		if i > 0 && p.base != files[i-1].end() {
			return files[i-1].end(), nil, fmt.Errorf("%w: %s does not begin where the file before it ends", errGap, filepath.Base(p.path))
		}
		if p.end() <= from {
			continue
		}
		if pos, bad, err := walkPart(p, max(from, p.base), min(limit, p.end()), each); err != nil {
			return pos, bad, err
		}
	}
	return 0, nil, nil
}

var errGap = errors.New("journal files do not join")

func walkPart(p part, from, to uint64, each func(uint64, []byte) error) (uint64, []byte, error) {
	if from >= to {
		return 0, nil, nil
	}
	f, err := os.Open(p.path)
	if err != nil {
		return from, nil, err
	}
	defer func() { _ = f.Close() }()
	r := entry.NewReader(io.NewSectionReader(f, int64(from-p.base), int64(to-from)), from)
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
