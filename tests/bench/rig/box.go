package rig

import (
	"context"
	"fmt"
	"os"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/sys"
)

// spareBox is a boundary process without a cell.
type spareBox struct {
	link    *boxlink.Link
	process cell.Process
	warden  *os.File
}

func (b spareBox) end() {
	b.link.Close()
	_ = b.warden.Close()
	_ = b.process.Kill()
	<-b.process.Done()
}

// fill makes the spare box, as skepd does once a cell has started.
func (r *Rig) fill(ctx context.Context) error {
	daemon, daemonEnd, err := sys.StreamPair()
	if err != nil {
		return err
	}
	warden, wardenEnd, err := sys.SeqpacketPair()
	if err != nil {
		return err
	}
	line, lineEnd, err := sys.SeqpacketPair()
	if err != nil {
		return err
	}
	defer sys.CloseAll([]*os.File{daemonEnd, wardenEnd, lineEnd})
	p, err := r.Driver.Box(ctx, cell.BoxEnds{Daemon: daemonEnd, Warden: wardenEnd, Lifeline: lineEnd})
	if err != nil {
		return fmt.Errorf("start a box: %w", err)
	}
	link, err := boxlink.Serve(daemon, line)
	if err != nil {
		return err
	}
	select { // a spare box that still starts would slow down whoever has the next turn
	case <-link.Watching():
	case <-link.Done():
		return fmt.Errorf("the spare box has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
	r.spare <- spareBox{link: link, process: p, warden: warden}
	return nil
}

// RecordFlows implements boxlink.Recorder as skepd does: the entries of one
// request share one sync.
func (r *Rig) RecordFlows(ctx context.Context, id string, records []*skepv1.FlowRecord) ([]*skepv1.RefusedFlow, error) {
	entries := make([]ledger.Entry, len(records))
	for i, record := range records {
		body, err := boxlink.Body(record)
		if err != nil {
			return nil, err
		}
		entries[i] = ledger.Entry{Cell: id, Body: body}
	}
	return nil, r.Ledger.AppendAll(ctx, entries)
}

// Lease implements boxlink.Recorder: the rig's cells have no budget of bytes.
func (r *Rig) Lease(string, int64) (int64, error) { return 0, nil }
