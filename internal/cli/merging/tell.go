package merging

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/snapshot/merge"
)

// Skepd hears what became of a merge.
type Skepd interface {
	MergeCommit(context.Context, *connect.Request[skepv1.MergeCommitRequest]) (*connect.Response[skepv1.Cell], error)
	MergeAbort(context.Context, *connect.Request[skepv1.MergeAbortRequest]) (*connect.Response[skepv1.Cell], error)
}

// Tell tells skepd the end of merges whose process died before it could: the record
// has their approval, and is to have what became of it. What cannot be told now is
// left for the next time: it is no reason to do nothing else.
func Tell(ctx context.Context, d Skepd, own, state string, say func(format string, args ...any)) {
	left, err := Left(own, state)
	if err != nil {
		say("%v", err)
	}
	for _, m := range left {
		word, err := tellOne(ctx, d, own, m)
		switch connect.CodeOf(err) {
		case connect.CodeNotFound, connect.CodeFailedPrecondition:
			err = errors.Join(fmt.Errorf("skepd does not know the %s of %.12s any more: %w", m.what(), m.Hash, err), m.End())
		}
		if err != nil {
			m.Release()
			say("%v", err)
			continue
		}
		say("recorded that an interrupted %s of %.12s was %s", m.what(), m.Hash, word)
	}
}

func (m *Merge) what() string {
	if m.Undo {
		return "undo"
	}
	return "merge"
}

func tellOne(ctx context.Context, d Skepd, own string, m *Pending) (word string, err error) {
	finished := merge.Finished
	if m.Undo {
		finished = merge.Undone
	}
	done, err := finished(own, m.Hash, m.At)
	if err != nil {
		return "", err
	}
	if done {
		word = "finished"
		_, err = d.MergeCommit(ctx, connect.NewRequest(&skepv1.MergeCommitRequest{
			Cell: m.Cell, Hash: m.Hash, Paths: m.Paths, Undo: m.Undo,
		}))
	} else {
		word = "given up"
		_, err = d.MergeAbort(ctx, connect.NewRequest(&skepv1.MergeAbortRequest{
			Cell: m.Cell, Hash: m.Hash, Reason: "it was interrupted, and nothing of it is left", Undo: m.Undo,
		}))
	}
	if err != nil {
		return "", err
	}
	return word, m.End()
}
