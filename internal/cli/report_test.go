package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/internal/cli/merging"
	"skep.dev/skep/internal/place"
)

// told is a skepd that hears of merges alone.
type told struct {
	skepv1connect.SkepClient
	err  error
	said []string
}

func (t *told) MergeCommit(_ context.Context, q *connect.Request[skepv1.MergeCommitRequest]) (*connect.Response[skepv1.Cell], error) {
	t.said = append(t.said, "commit "+q.Msg.Cell+" "+string(q.Msg.Paths[0]))
	return connect.NewResponse(&skepv1.Cell{}), t.err
}

func (t *told) MergeAbort(_ context.Context, q *connect.Request[skepv1.MergeAbortRequest]) (*connect.Response[skepv1.Cell], error) {
	t.said = append(t.said, "abort "+q.Msg.Cell)
	return connect.NewResponse(&skepv1.Cell{}), t.err
}

// A merge whose process died is told once, as what it was; where skepd cannot be
// asked now it is told by a later command (S4).
func TestInterruptedMergeIsTold(t *testing.T) {
	a, _, errs := app(t)
	own, err := a.own()
	if err != nil {
		t.Fatal(err)
	}
	skepd := &told{}
	d := &daemon{SkepClient: skepd, places: place.Places{State: "/state"}}
	begin := func() {
		p, err := merging.Begin(own, merging.Merge{
			Cell: "cell", Hash: strings.Repeat("ab", 32), State: "/state", Paths: [][]byte{[]byte("/x")}, At: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
	ask := func(want ...string) {
		t.Helper()
		skepd.said = nil
		if err := a.report(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(skepd.said, ", "); got != strings.Join(want, ", ") {
			t.Errorf("told %q, want %q (%s)", got, want, errs)
		}
	}
	ask()
	begin()
	skepd.err = connect.NewError(connect.CodeUnavailable, errors.New("the disk is full"))
	ask("abort cell")
	skepd.err = nil
	ask("abort cell") // there is no journal of it: nothing was written
	ask()

	begin()
	skepd.err = connect.NewError(connect.CodeFailedPrecondition, errors.New("no such merge"))
	ask("abort cell")
	ask()
	if !strings.Contains(errs.String(), "does not know the merge of abababababab") {
		t.Errorf("%s", errs)
	}
	if entries, err := os.ReadDir(filepath.Join(own, "merging")); err != nil || len(entries) != 0 {
		t.Errorf("%v %v is left", entries, err)
	}
}
