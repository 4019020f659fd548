package merging

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// skepd notes what it is told, and answers with err.
type skepd struct {
	told []string
	err  error
}

func (s *skepd) MergeCommit(_ context.Context, q *connect.Request[skepv1.MergeCommitRequest]) (*connect.Response[skepv1.Cell], error) {
	s.told = append(s.told, fmt.Sprint("commit ", q.Msg.Cell, " ", q.Msg.Undo))
	return connect.NewResponse(&skepv1.Cell{}), s.err
}

func (s *skepd) MergeAbort(_ context.Context, q *connect.Request[skepv1.MergeAbortRequest]) (*connect.Response[skepv1.Cell], error) {
	s.told = append(s.told, fmt.Sprint("abort ", q.Msg.Cell, " ", q.Msg.Undo))
	return connect.NewResponse(&skepv1.Cell{}), s.err
}

// A merge and an undo of one cell are told apart, each until skepd has it and not again.
func TestEachIsToldUntilItIsKnown(t *testing.T) {
	own := t.TempDir()
	for _, undo := range []bool{false, true} {
		m := one("cell")
		m.Hash, m.Undo = strings.Repeat("ab", 32), undo
		p, err := Begin(own, m)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	for _, step := range []struct {
		err  error
		want string
	}{
		{connect.NewError(connect.CodeUnavailable, errors.New("no disk")), "abort cell false, abort cell true"},
		{nil, "abort cell false, abort cell true"},
		{nil, ""},
	} {
		d := &skepd{err: step.err}
		Tell(t.Context(), d, own, "/state", say)
		if got := strings.Join(d.told, ", "); got != step.want {
			t.Errorf("told %q, want %q", got, step.want)
		}
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "interrupted merge of abababababab was given up") || !strings.Contains(all, "interrupted undo of") {
		t.Errorf("said %s", all)
	}
}

// What skepd does not know is said, and not told for ever.
func TestUnknownIsForgotten(t *testing.T) {
	own := t.TempDir()
	m := one("cell")
	m.Hash, m.Undo = strings.Repeat("ab", 32), true
	p, err := Begin(own, m)
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	d := &skepd{err: connect.NewError(connect.CodeNotFound, errors.New("no such cell"))}
	said := ""
	for range 2 {
		Tell(t.Context(), d, own, "/state", func(format string, args ...any) { said += fmt.Sprintf(format, args...) })
	}
	if len(d.told) != 1 || !strings.Contains(said, "does not know the undo") {
		t.Errorf("told %v, said %s", d.told, said)
	}
}
