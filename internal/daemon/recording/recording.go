// Package recording is the ledger as skepd writes it.
//
// Its laws:
//   - What is appended is durable before it returns, even where the request that caused
//     it is given up: the effect is not.
//   - The seal of a cell's end follows the word of it; whoever waits for the seals that
//     are due is answered when they are written.
package recording

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/changes"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
)

// appendTime bounds the wait for the disk.
const appendTime = 30 * time.Second

// Record writes to one ledger.
type Record struct {
	Ledger *ledger.Ledger
	Dir    string // of the ledger
	Log    *slog.Logger

	mu  sync.Mutex
	due map[string]chan struct{} // of ended cells whose seal is on its way; closed when it is written
}

// Append implements changes.Record.
func (r *Record) Append(cell string, body kind.Body) error {
	ctx, cancel := context.WithTimeout(context.Background(), appendTime)
	defer cancel()
	if _, err := r.Ledger.Append(ctx, ledger.Entry{Cell: cell, Body: body}); err != nil {
		return fmt.Errorf("record %s: %w", body.Kind(), err)
	}
	return nil
}

// Read implements changes.Record.
func (r *Record) Read(cell string, kinds []kind.Kind) iter.Seq2[changes.Recorded, error] {
	return func(yield func(changes.Recorded, error) bool) {
		for e, err := range ledger.Read(r.Dir, ledger.Filter{Cell: cell, Kinds: kinds}) {
			read := changes.Recorded{Cell: e.Cell}
			if err == nil {
				read.Body, err = e.Decode()
			}
			if !yield(read, err) {
				return
			}
		}
	}
}

// Seal implements changes.Record.
func (r *Record) Seal(cell string) {
	if err := r.Ledger.EndCell(cell); err != nil {
		r.Log.Warn("a cell's last entries are not sealed yet", "cell", cell, "err", err)
	}
}

// Due says that a cell's seal is on its way, before anyone is told of the cell's end.
// written has to be called once it is there, or cannot be.
func (r *Record) Due(cell string) (written func()) {
	done := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due == nil {
		r.due = map[string]chan struct{}{}
	}
	r.due[cell] = done
	return func() {
		r.mu.Lock()
		delete(r.due, cell)
		r.mu.Unlock()
		close(done)
	}
}

// Sealed answers when the seals that are due are written. A cell that runs has none.
func (r *Record) Sealed(ctx context.Context, _ *connect.Request[skepv1.LedgerSealRequest]) (*connect.Response[skepv1.LedgerSealResponse], error) {
	r.mu.Lock()
	due := slices.Collect(maps.Values(r.due))
	r.mu.Unlock()
	for _, written := range due {
		select {
		case <-written:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return connect.NewResponse(&skepv1.LedgerSealResponse{}), nil
}
