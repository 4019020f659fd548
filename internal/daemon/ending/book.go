package ending

import (
	"log/slog"
	"sync"
	"time"

	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/ledger/kind"
)

// Book is where the ends of cells are written: in the ledger first.
type Book struct {
	// Append makes an entry of a cell durable; Seal signs what the ledger has of one that has ended.
	Append func(cell string, body kind.Body) error
	Seal   func(cell string) error
	Cells  *cells.Store
	// Changed counts the files in a cell's layer, -1 if it cannot.
	Changed func(cell string) int64
	Now     func() time.Time
	Log     *slog.Logger
}

// Settle records the end of a cell in the ledger, after which it is told.
func (b *Book) Settle(id string, begin time.Time, code int, cause cells.Cause, state cells.State) {
	now := b.Now()
	body := Entry(code, cause, now.Sub(begin))
	counted := make(chan int64, 1)
	go func() { counted <- b.Changed(id) }()
	if err := b.Append(id, body); err != nil {
		b.Log.Error("the end of a cell was not recorded", "cell", id, "err", err)
	}
	b.set(id, now, code, cause, state, <-counted)
}

// Tell tells the end of a cell that the ledger has already.
func (b *Book) Tell(id string, at time.Time, end *kind.CellStopped) {
	b.set(id, at, int(end.Exit), CauseOf(end), cells.Stopped, b.Changed(id))
}

// set is what is told of an ended cell.
func (b *Book) set(id string, now time.Time, code int, cause cells.Cause, state cells.State, changed int64) {
	err := b.Cells.Set(id, func(r *cells.Record) {
		r.State, r.Stopped, r.ExitCode, r.Cause = state, now, code, cause
		r.FilesChanged = changed
	})
	if err != nil {
		b.Log.Error("the end of a cell is not told", "cell", id, "err", err)
	}
}

// Keep seals what the ledger has of an ended cell, and writes the cell's record: what a
// crash takes of both, the next start makes again from the ledger's entries.
func (b *Book) Keep(id string) {
	var sealed sync.WaitGroup
	sealed.Go(func() {
		if err := b.Seal(id); err != nil {
			b.Log.Error("the end of a cell is not sealed", "cell", id, "err", err)
		}
	})
	if err := b.Cells.Keep(id); err != nil {
		b.Log.Error("the end of a cell was not kept", "cell", id, "err", err)
	}
	sealed.Wait()
}
