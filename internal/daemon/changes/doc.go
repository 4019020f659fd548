// Package changes shows what cells wrote, and has it merged or dropped (snapshot.md).
//
// Its laws:
//   - A difference that was sent was recorded as shown, with its hash, before.
//   - A merge is approved in the record before the caller gets the layer, and
//     ends in it, once, with every path, or with the reason why nothing was changed. The
//     same holds where a merge is taken back, whatever became of its cell.
//   - One caller at a time merges a cell, from the plan to the end that he tells, or
//     until he goes.
//   - It reads no layer itself: processes of the cells' ids do (S12a).
package changes

import (
	"context"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/ledger/kind"
)

// Layers starts processes that serve layers.
type Layers interface {
	Layer(ctx context.Context, conn *os.File, powers cell.LayerPowers, grants []cell.LayerGrant) (cell.Process, error)
}

// Record is the ledger, as far as it is needed here.
type Record interface {
	// Append makes an entry of a cell durable.
	Append(cell string, body kind.Body) error
	// Seal signs what was recorded of a cell after its end.
	Seal(cell string)
	// Read yields what was recorded of a cell, or of all of them, of these kinds, in order.
	Read(cell string, kinds []kind.Kind) iter.Seq2[Recorded, error]
}

// Recorded is an entry of a cell.
type Recorded struct {
	Cell string
	Body kind.Body
}

// Changes serves the calls of the API that look at layers.
type Changes struct {
	Layers Layers
	Desk   *handover.Desk
	Cells  *cells.Store
	Record Record
	// Held gives the granted roots of a cell that still runs; the caller owns them.
	Held func(cell string) (*handover.Bundle, error)
	// Later does what no caller waits for; the daemon does not end before. Nil does it at once.
	Later func(func())
	Log   *slog.Logger

	claims claims
	fresh  sync.Map // paths of plans that this process made and nobody has come back for
}

// find resolves a reference into a record, with the API's error.
func (c *Changes) find(ref string) (cells.Record, error) {
	r, err := c.Cells.Find(ref)
	return r, cells.APIError(err)
}

// dir is where a cell's layer stands.
func (c *Changes) dir(id string, parts ...string) string {
	return filepath.Join(append([]string{c.Cells.Dir(id), "layer"}, parts...)...)
}
