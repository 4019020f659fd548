// Package greeting agrees with a caller on the version of the contract and on the
// state directory, before a call does anything.
//
// Its laws:
//   - A release speaks its own version and the one before.
//   - A caller who names versions or a state directory that are not ours is refused
//     before the call is read. One who names none, such as curl, is not asked.
package greeting

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/client"
)

// The versions of the contract that this daemon speaks: its own, and the one
// before, so that a client of the last release works. There is none before 1.
const (
	apiMax = 1
	apiMin = max(1, apiMax-1)
)

// Greeting is what one daemon says of itself.
type Greeting struct{ Version, Commit, State, Instance, Fault string }

// negotiate finds the newest version that both sides speak; 0 if there is none.
func negotiate(clientMin, clientMax, serverMin, serverMax int32) int32 {
	v := min(clientMax, serverMax)
	if clientMin > clientMax || v < clientMin || v < serverMin {
		return 0
	}
	return v
}

// agree is negotiate with the sentence that says why there is no version.
func (g Greeting) agree(clientMin, clientMax int32) (int32, error) {
	if v := negotiate(clientMin, clientMax, apiMin, apiMax); v != 0 {
		return v, nil
	}
	return 0, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(
		"skepd %s speaks API %d to %d, the caller %d to %d: one of the two is of another release; a skepd without a cell ends after ten minutes",
		g.Version, apiMin, apiMax, clientMin, clientMax))
}

// Answer is the call Version.
func (g Greeting) Answer(_ context.Context, q *connect.Request[skepv1.VersionRequest]) (*connect.Response[skepv1.VersionResponse], error) {
	v, err := g.agree(q.Msg.ApiMin, q.Msg.ApiMax)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&skepv1.VersionResponse{
		Version: g.Version, Commit: g.Commit, Api: v, ApiMin: apiMin, ApiMax: apiMax, State: g.State, Instance: g.Instance, Fault: g.Fault,
	}), nil
}

// Check puts the greeting of a call that brings its own, in its head, before h.
func (g Greeting) Check(h http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.fits(r.Header); err != nil {
			_ = refuse.Write(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (g Greeting) fits(head http.Header) error {
	if versions := head.Get(client.HeaderAPI); versions != "" {
		var least, most int32
		if _, err := fmt.Sscanf(versions, "%d-%d", &least, &most); err != nil {
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s is %q: write it as 1-2", client.HeaderAPI, versions))
		}
		if _, err := g.agree(least, most); err != nil {
			return err
		}
	}
	state, err := url.PathUnescape(head.Get(client.HeaderState))
	if err == nil && (state == "" || state == g.State) {
		return nil
	}
	ours, errOurs := os.Stat(g.State)
	if theirs, errTheirs := os.Stat(state); errors.Join(err, errOurs, errTheirs) == nil && os.SameFile(ours, theirs) {
		return nil
	}
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("this skepd keeps its state in %s, not in %s", g.State, state))
}
