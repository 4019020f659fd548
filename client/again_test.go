package client

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// A daemon that has gone between two calls is replaced before the second is sent.
func TestAnotherDaemonIsAskedFor(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	asked := 0
	c := NewAgain(socket, func(context.Context) error {
		asked++
		l, err := net.Listen("unix", socket)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() { _ = http.Serve(l, http.NotFoundHandler()) }()
		return nil
	})
	_, err := c.Version(context.Background(), connect.NewRequest(&skepv1.VersionRequest{}))
	if code := connect.CodeOf(err); code != connect.CodeUnimplemented || asked != 1 {
		t.Errorf("asked %d times; the answer is %v, of code %v", asked, err, code)
	}
	if _, err := New(filepath.Join(t.TempDir(), "none")).Version(context.Background(), connect.NewRequest(&skepv1.VersionRequest{})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a client that starts nothing: %v", err)
	}
}
