package verify

import (
	"fmt"
	"strconv"
	"strings"

	"skep.dev/skep/internal/ledger/entry"
)

// Checkpoint is a point of the record that an auditor keeps elsewhere: the
// number and the hash of a seal, and the key that signed it. A state directory
// that was rolled back as a whole no longer holds it (D8).
type Checkpoint struct {
	Seals uint64     // seals up to and with this one
	Hash  entry.Hash // of the seal's entry
	Key   string     // id of the key, 64 hex digits
}

// String is SEALS.HASH.KEY, one word.
func (c Checkpoint) String() string { return fmt.Sprintf("%d.%s.%s", c.Seals, c.Hash, c.Key) }

// ParseCheckpoint reads the form of [Checkpoint.String].
func ParseCheckpoint(s string) (Checkpoint, error) {
	var c Checkpoint
	p := strings.Split(s, ".")
	if len(p) != 3 {
		return c, fmt.Errorf("checkpoint %q: not SEALS.HASH.KEY", s)
	}
	n, err := strconv.ParseUint(p[0], 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != p[0] || n == 0 {
		return c, fmt.Errorf("checkpoint %q: %q is not a number of seals", s, p[0])
	}
	if c.Hash, err = entry.ParseHash(p[1]); err != nil {
		return c, fmt.Errorf("checkpoint %q: %w", s, err)
	}
	if _, err := entry.ParseHash(p[2]); err != nil {
		return c, fmt.Errorf("checkpoint %q: key: %w", s, err)
	}
	c.Seals, c.Key = n, p[2]
	return c, nil
}
