package box

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
)

// senders is how many requests to the daemon are under way at once: while one
// batch becomes durable, the next is gathered.
const senders = 4

var errTooManyRecords = errors.New("too many records wait for the daemon")

// recorder appends through the daemon, many records in one request (B192).
type recorder struct {
	client  skepv1connect.BoxServiceClient
	waiting chan pending
}

type pending struct {
	record *skepv1.FlowRecord
	done   chan error
}

func newRecorder(client skepv1connect.BoxServiceClient) *recorder {
	return &recorder{client: client, waiting: make(chan pending, boundary.WaitingRecords)}
}

// Record returns nil when the daemon has made the record durable. One that ctx
// left behind may still become durable; the caller treats it as not written.
func (r *recorder) Record(ctx context.Context, rec boundary.Record) error {
	p := pending{message(rec), make(chan error, 1)}
	select {
	case r.waiting <- p:
	default:
		return errTooManyRecords
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for a record: %w", ctx.Err())
	}
}

// run sends batches until ctx ends.
func (r *recorder) run(ctx context.Context) {
	for {
		var batch []pending
		select {
		case p := <-r.waiting:
			batch = append(batch, p)
		case <-ctx.Done():
			return
		}
	gather:
		for len(batch) < boundary.RecordBatch {
			select {
			case p := <-r.waiting:
				batch = append(batch, p)
			default:
				break gather
			}
		}
		err := r.send(ctx, batch)
		for _, p := range batch {
			p.done <- err
		}
	}
}

func (r *recorder) send(ctx context.Context, batch []pending) error {
	m := &skepv1.RecordRequest{}
	for _, p := range batch {
		m.Records = append(m.Records, p.record)
	}
	ctx, cancel := context.WithTimeout(ctx, boundary.RecordWait)
	defer cancel()
	if _, err := r.client.Record(ctx, connect.NewRequest(m)); err != nil {
		return fmt.Errorf("append %d records: %w", len(batch), err)
	}
	return nil
}

// message is the wire form of a record (B191). Every string in it is ours or
// normalised; the ledger stores it as a JSON string all the same.
func message(r boundary.Record) *skepv1.FlowRecord {
	q := r.Request
	m := &skepv1.FlowRecord{
		Kind: kindOf(r.Kind), UnixNanos: r.Time.UnixNano(), Flow: q.ID.String(), Connection: q.Conn.String(),
		Cell: q.Cell, Agent: q.Agent, Generation: q.Generation, Policy: r.Policy, Listener: "native",
		Wire: q.Wire.String(), Transport: q.Transport.String(), Direction: q.Direction.String(), Destination: q.Destination(), Peer: q.Peer,
		Rule: r.Verdict.Rule, Line: uint32(r.Verdict.Line), Decision: r.Decision, Reason: r.Verdict.Reason.Token(), AllowWith: r.Verdict.AllowWith,
		InnerProtocol: q.Inner.Protocol.String(), InnerName: q.Inner.Name, InnerAlpn: q.Inner.ALPN,
		Count: q.Count, Dropped: uint32(r.Dropped), BytesUp: r.Up, BytesDown: r.Down, Milliseconds: uint64(r.Duration.Milliseconds()),
	}
	if q.Conn == (flow.ID{}) {
		m.Connection = "" // refused before there was one
	}
	if r.Address.IsValid() {
		m.Address = r.Address.String()
	}
	return m
}

func kindOf(k boundary.Kind) skepv1.FlowRecord_Kind {
	switch k {
	case boundary.Intent:
		return skepv1.FlowRecord_KIND_INTENT
	case boundary.Outcome:
		return skepv1.FlowRecord_KIND_OUTCOME
	case boundary.Denied:
		return skepv1.FlowRecord_KIND_DENIED
	}
	return skepv1.FlowRecord_KIND_UNSPECIFIED
}
