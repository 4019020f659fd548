package box

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
)

// protocol is the version of the box service.
const protocol = 1

// over speaks HTTP/2 with prior knowledge on a descriptor. It owns f.
func over(ctx context.Context, f *os.File) (*http.ClientConn, error) {
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("use descriptor %s: %w", f.Name(), err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	t := &http.Transport{
		Protocols: &protocols, DisableCompression: true,
		// The connection is there already; nothing is ever dialed.
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil },
	}
	h, err := t.NewClientConn(ctx, "http", "descriptor:80")
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("speak HTTP/2 on %s: %w", f.Name(), err)
	}
	return h, nil
}

// link is the daemon's end as the box sees it.
type link struct {
	client skepv1connect.BoxServiceClient
	watch  *connect.ServerStreamForClient[skepv1.WatchResponse]
}

// watch opens the stream whose first message is the assignment. It blocks until
// the daemon has a cell for this box.
func watch(ctx context.Context, daemon *http.ClientConn) (*link, *skepv1.Assignment, error) {
	l := &link{client: skepv1connect.NewBoxServiceClient(&http.Client{Transport: daemon}, "http://skepd", connect.WithReadMaxBytes(4<<20))}
	stream, err := l.client.Watch(ctx, connect.NewRequest(&skepv1.WatchRequest{Protocol: protocol}))
	if err != nil {
		return nil, nil, fmt.Errorf("watch the daemon: %w", err)
	}
	l.watch = stream
	if !stream.Receive() {
		return nil, nil, fmt.Errorf("wait for a cell: %w", l.ended())
	}
	a := stream.Msg().GetAssignment()
	if a.GetCell() == "" {
		return nil, nil, errors.New("wait for a cell: the first message is no assignment")
	}
	return l, a, nil
}

// follow hands resolver updates on until the cell ends, which is nil, or the
// stream breaks, which is an error: without the daemon nothing can be recorded.
func (l *link) follow(update func(*skepv1.ResolverUpdate)) error {
	for l.watch.Receive() {
		switch m := l.watch.Msg(); {
		case m.GetResolver() != nil:
			update(m.GetResolver())
		case m.GetEnd() != nil:
			return nil
		default:
			return errors.New("the daemon sent a message that this box does not know")
		}
	}
	return l.ended()
}

func (l *link) ended() error {
	if err := l.watch.Err(); err != nil {
		return err
	}
	return errors.New("the daemon ended the stream")
}

// ready tells the daemon that the agent may start, or why it must not (B163).
func (l *link) ready(ctx context.Context, why error) error {
	m := &skepv1.ReadyRequest{}
	if why != nil {
		m.Error = why.Error()
	}
	_, err := l.client.Ready(ctx, connect.NewRequest(m))
	return err
}

// done tells the daemon that everything is closed and recorded.
func (l *link) done(ctx context.Context) error {
	_, err := l.client.Ready(ctx, connect.NewRequest(&skepv1.ReadyRequest{Done: true}))
	return err
}
