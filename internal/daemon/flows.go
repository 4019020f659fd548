package daemon

import (
	"context"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/ledger"
)

// RecordFlows implements boxlink.Recorder: it returns when all of it is durable,
// by one sync.
func (d *Daemon) RecordFlows(ctx context.Context, id string, records []*skepv1.FlowRecord) error {
	entries := make([]ledger.Entry, len(records))
	for i, r := range records {
		body, err := boxlink.Body(r)
		if err != nil {
			return err
		}
		entries[i] = ledger.Entry{Cell: id, Body: body}
	}
	if err := d.ledger.AppendAll(ctx, entries); err != nil {
		return err
	}
	d.count(id, records)
	return nil
}

// count keeps the numbers that ps and the end of a run show.
func (d *Daemon) count(id string, records []*skepv1.FlowRecord) {
	var allowed, refused int64
	var carried uint64
	for _, r := range records {
		switch r.Kind {
		case skepv1.FlowRecord_KIND_INTENT:
			allowed += boxlink.Attempts(r)
		case skepv1.FlowRecord_KIND_DENIED:
			refused += boxlink.Attempts(r)
		case skepv1.FlowRecord_KIND_OUTCOME:
			carried += r.BytesUp + r.BytesDown
		case skepv1.FlowRecord_KIND_UNSPECIFIED:
		}
	}
	d.cells.Count(id, allowed, refused)
	if l := d.lifeOf(id); l != nil && carried > 0 {
		l.carried(carried)
	}
}

// pushResolvers tells every box.
func (d *Daemon) pushResolvers(u *skepv1.ResolverUpdate) {
	d.mu.Lock()
	var all []*life
	for _, l := range d.live {
		all = append(all, l)
	}
	d.mu.Unlock()
	for _, l := range all {
		if b := l.boundary(); b != nil {
			b.Link.Push(u)
		}
	}
}
