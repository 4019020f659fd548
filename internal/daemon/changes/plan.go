package changes

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/sys/durable"
)

// mergePlan is what a caller is merging, or taking back. It stands on the disk from
// the approval until the caller has told what became of it, however often caller or
// skepd end between: the record is to say which of the two it was. It opens nothing.
type mergePlan struct {
	UID  uint32
	Hash string
	Root string
	Diff *snapshot.Difference // that is merged
	Undo []kind.Path          // that are taken back, instead
}

var errNoPlan = errors.New("no such merge is under way: plan it first")

func (c *Changes) planPath(id string, undo bool) string {
	name := "merge-plan"
	if undo {
		name = "undo-plan"
	}
	return filepath.Join(c.Cells.Dir(id), name)
}

// keepPlan replaces the plan of a cell: the last caller who read its difference merges.
func (c *Changes) keepPlan(id string, undo bool, m *mergePlan) error {
	var raw bytes.Buffer
	if err := gob.NewEncoder(&raw).Encode(m); err != nil {
		return fmt.Errorf("keep the plan of a merge: %w", err)
	}
	path := c.planPath(id, undo)
	if err := durable.ReplaceFile(path, raw.Bytes(), 0o600); err != nil {
		return fmt.Errorf("keep the plan of a merge: %w", err)
	}
	c.fresh.Store(path, true)
	return nil
}

// planOf is the plan of a cell if it is this caller's, for this hash.
func (c *Changes) planOf(id string, undo bool, uid uint32, hash string) (*mergePlan, error) {
	raw, err := os.ReadFile(c.planPath(id, undo))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoPlan
	}
	if err != nil {
		return nil, fmt.Errorf("read the plan of a merge: %w", err)
	}
	var m mergePlan
	if err := gob.NewDecoder(bytes.NewReader(raw)).Decode(&m); err != nil {
		return nil, fmt.Errorf("read the plan of a merge: %w", err)
	}
	if m.Diff == nil && !undo || m.UID != uid || m.Hash != hash {
		return nil, errNoPlan
	}
	return &m, nil
}

// endPlan forgets a plan whose end is recorded.
func (c *Changes) endPlan(id string, undo bool) error {
	if err := os.Remove(c.planPath(id, undo)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the plan of a merge: %w", err)
	}
	return nil
}
