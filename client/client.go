// Package client speaks to skepd over its unix socket.
//
// Its laws:
//   - It holds no key and no right: the kernel tells skepd who calls.
//   - It starts nothing; internal/launch does.
package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"syscall"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
)

// The versions of the contract that this client speaks.
const (
	APIMin = 1
	APIMax = 1
)

// New returns a client of the daemon at a socket, RUN/api.sock. It connects at
// the first call.
func New(socket string) skepv1connect.SkepClient { return NewAgain(socket, nil) }

// NewAgain is New for a caller that can start another daemon: where none listens any
// more, again is asked for one, once for each call. Nothing was sent before that.
func NewAgain(socket string, again func(context.Context) error) skepv1connect.SkepClient {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "unix", socket)
			if again == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
				return c, err
			}
			if err := again(ctx); err != nil {
				return nil, err
			}
			return d.DialContext(ctx, "unix", socket)
		},
		DisableCompression: true,
		// A connection that is kept may be closed by a skepd that is being replaced at the very
		// moment when a call is sent on it, and nobody could say whether that was heard.
		DisableKeepAlives: true,
	}
	return skepv1connect.NewSkepClient(&http.Client{Transport: patient{transport}}, "http://skepd")
}

// Negotiate asks the daemon for its version and fails if no version of the
// contract is spoken by both.
func Negotiate(ctx context.Context, c skepv1connect.SkepClient) (*skepv1.VersionResponse, error) {
	r, err := c.Version(ctx, connect.NewRequest(&skepv1.VersionRequest{ApiMin: APIMin, ApiMax: APIMax}))
	if err != nil {
		return nil, fmt.Errorf("ask skepd for its version: %w", err)
	}
	return r.Msg, nil
}
