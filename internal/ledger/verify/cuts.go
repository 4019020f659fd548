package verify

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/jcs"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/seal"
)

// cuts goes through the seals beside the journal: at the position where a
// segment was cut, its chain must have stood at the seal's last entry. So the
// order of the cells' entries among each other is bound too, and each seal is
// held against the journal, not only a cell's last one.
type cuts struct {
	f     *os.File
	r     *entry.Reader
	cell  string
	next  kind.Seal // the seal that is due next
	n     uint64    // its number
	fault *Fault    // the first; others may explain it better
}

func openCuts(dir string, size uint64) (*cuts, error) {
	c := &cuts{}
	if size == 0 {
		return c, nil
	}
	f, err := openRegular(filepath.Join(dir, "seals"))
	if err != nil {
		return nil, err
	}
	c.f, c.r = f, entry.NewReader(io.NewSectionReader(f, 0, int64(size)), 0)
	c.read()
	return c, nil
}

func (c *cuts) close() {
	if c.f != nil {
		_ = c.f.Close()
	}
}

// read takes the next seal, whose form and signature the first pass has seen.
func (c *cuts) read() {
	raw, err := c.r.Next()
	if err != nil {
		c.r = nil
		return
	}
	e, s, err := seal.Parse(raw)
	if err != nil {
		c.r = nil
		return
	}
	c.cell, c.next, c.n = e.Cell, s, e.Seq
}

// upTo holds the seals that were cut at or before pos against the chains,
// which have been walked up to pos.
func (c *cuts) upTo(pos uint64, cells map[string]*proof) {
	for c.r != nil && c.next.At <= pos {
		p := cells[c.cell]
		if p == nil {
			c.fault = &Fault{Status: Altered, Cell: c.cell, Seal: c.n, Detail: "the seals changed while they were read"}
			return
		}
		if c.fault == nil && (p.seq != c.next.Last || p.hash.String() != c.next.Hash) {
			c.fault = &Fault{Status: Altered, Cell: c.cell, Seq: c.next.Last, Seal: c.n,
				Detail: fmt.Sprintf("at position %d the chain stands at entry %d, not at the one that was sealed there", c.next.At, p.seq)}
		}
		c.read()
	}
}

// parseStrict reads an entry and refuses one that is not canonical throughout.
func parseStrict(payload []byte) (entry.Entry, error) {
	e, err := entry.Parse(payload)
	if err != nil {
		return e, err
	}
	return e, jcs.Valid(e.Body)
}

func hashOf(payload []byte) entry.Hash { return sha256.Sum256(payload) }

// openRegular refuses what could block or lead elsewhere.
func openRegular(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: not a regular file", path, entry.ErrAlien)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !now.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, fs.ErrInvalid), err, f.Close())
	}
	return f, nil
}
