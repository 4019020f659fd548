package daemon

import (
	"context"
	"errors"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/ledger"
)

var errNotLive = errors.New("no such cell lives")

// RecordFlows implements boxlink.Recorder: it returns when all of it is durable,
// by one sync, but for the intents that the cell's owner has no room for.
func (d *Daemon) RecordFlows(ctx context.Context, id string, records []*skepv1.FlowRecord) (refused []*skepv1.RefusedFlow, err error) {
	l := d.lifeOf(id)
	if l == nil {
		return nil, errNotLive
	}
	taken := l.traffic.Take(records)
	defer func() { taken.Done(err == nil) }()
	entries := make([]ledger.Entry, len(taken.Keep))
	for i, r := range taken.Keep {
		body, err := boxlink.Body(r)
		if err != nil {
			return nil, err
		}
		entries[i] = ledger.Entry{Cell: id, Body: body}
	}
	if err := d.ledger.AppendAll(ctx, entries); err != nil {
		d.Metrics.Unwritten(len(entries))
		return nil, err
	}
	l.counted.Records(taken.Keep)
	d.count(l, taken.Keep)
	d.asked.Take(id, taken.Keep)
	return taken.Refused, nil
}

// recorder is what one box of a cell records with.
type recorder struct {
	*Daemon
	cell *life
	box  *boxes.Box
}

// Numbers implements boxlink.Numbered.
func (r recorder) Numbers(n *skepv1.BoxNumbers) { r.cell.counted.Numbers(n) }

// Lease implements boxlink.Recorder.
func (r recorder) Lease(id string, spent int64) (int64, error) {
	n, err := r.bytes.Lease(id, r.cell.boundary.Carried(r.box, spent))
	r.cell.boundary.Leased(r.box, n)
	return n, err
}

// Draft implements boxlink.Recorder.
func (r recorder) Draft(id string, q *skepv1.DraftRequest) (string, error) {
	record, ok := r.cells.Get(id)
	if !ok {
		return "", errNotLive
	}
	return r.asked.Draft(record, q)
}

// Asked implements boxlink.Recorder.
func (r recorder) Asked(id, card string) string { return r.asked.Asked(id, card) }

// collect settles what a cell was lent, before its end is recorded, and tells what of
// it counts as spent.
func (d *Daemon) collect(l *life) int64 {
	spent, told := l.boundary.Spent()
	spent, err := d.bytes.Close(l.id, spent, told)
	if err != nil {
		d.Log.Error("the bytes of a cell are not settled: all that it was lent counts as spent", "cell", l.id, "err", err)
	}
	return spent
}

// count keeps the numbers that ps and the end of a run show.
// A flow that found no bytes left is the end of its cell.
func (d *Daemon) count(l *life, records []*skepv1.FlowRecord) {
	t := boxlink.Count(records)
	d.cells.Count(l.id, t.Allowed, t.Refused)
	if used, limit := d.bytes.Used(l.id); t.Exhausted && limit > 0 {
		l.end(cells.Cause{Word: "budget", Budget: "net", Limit: limit, Peak: used})
	}
}

// pushResolvers tells every box.
func (d *Daemon) pushResolvers(u *skepv1.ResolverUpdate) {
	for _, l := range d.lives() {
		for _, b := range l.boundary.All() {
			b.Link.Push(u)
		}
	}
}
