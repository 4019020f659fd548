// Package door lets callers in: to the API and to the desk beside it.
//
// Its laws:
//   - While it is shut nobody is refused: who connects waits in the socket's backlog, who
//     asks on a connection that was open before is told to ask again on another.
//   - Who follows something leaves when it is being shut, with a word on which to ask again.
//   - The listening sockets are the daemon's, and stay open, so that another program can
//     go on with them.
package door

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"

	"skep.dev/skep/client"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/handover"
)

// ErrAgain ends a stream that another skepd goes on with.
var ErrAgain = connect.NewError(connect.CodeAborted, errors.New("skepd is being replaced: ask again"))

// Config is what a door is made of.
type Config struct {
	API, FDs *os.File // listening sockets
	Desk     *handover.Desk
	Handler  http.Handler
	Owners   []uint32
	Log      *slog.Logger
}

// Door is the way in.
type Door struct {
	Config
	failed chan error

	mu      sync.Mutex
	server  *http.Server
	api     net.Listener   // of the server, a duplicate
	accepts sync.WaitGroup // those who let in
	inside  map[net.Conn]bool
	changed chan struct{} // closed at the next change of who is inside
	leaving chan struct{} // closed while it is shut
}

// New returns a door that is to be opened.
func New(c Config) *Door {
	return &Door{
		Config: c, failed: make(chan error, 4), inside: map[net.Conn]bool{}, changed: make(chan struct{}), leaving: make(chan struct{}),
	}
}

// Leaving is closed when the door is being shut: who only waits for something to follow
// leaves with ErrAgain.
func (d *Door) Leaving() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leaving
}

// Failed tells when nobody can come in any more.
func (d *Door) Failed() <-chan error { return d.failed }

// Open begins to let callers in.
func (d *Door) Open() error {
	l, err := net.FileListener(d.API)
	if err != nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	if err := d.FDs.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("serve the desk: %w", err)
	}
	s := &http.Server{
		Handler: d.gate(), ConnContext: peer.FromConn, ConnState: d.note, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(d.Log.Handler(), slog.LevelDebug),
	}
	d.mu.Lock()
	d.server, d.api, d.leaving = s, l, make(chan struct{})
	leaving := d.leaving
	d.mu.Unlock()
	accept := func(serve func() error) {
		d.accepts.Go(func() {
			if err := serve(); !isClosed(leaving) && !errors.Is(err, http.ErrServerClosed) {
				d.failed <- err
			}
		})
	}
	accept(func() error { return d.Desk.Serve(d.FDs) })
	accept(func() error { return s.Serve(&peer.Listener{Listener: l, Owners: d.Owners, Log: d.Log}) })
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// gate sends callers away that come on an old connection to a shut door.
func (d *Door) gate() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isClosed(d.Leaving()) {
			w.Header().Set(client.HeaderAgain, "1")
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		d.Handler.ServeHTTP(w, r)
	})
}

// note keeps who is inside: whose request is read or answered.
func (d *Door) note(c net.Conn, s http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s == http.StateNew || s == http.StateActive {
		d.inside[c] = true
	} else {
		delete(d.inside, c)
	}
	close(d.changed)
	d.changed = make(chan struct{})
}

// Shut lets nobody in, and returns when at most so many are inside. After an error the
// door is shut all the same.
func (d *Door) Shut(ctx context.Context, left int) error {
	d.mu.Lock()
	s, api := d.server, d.api
	close(d.leaving)
	d.mu.Unlock()
	_ = api.Close()
	if err := d.FDs.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return fmt.Errorf("shut the desk: %w", err)
	}
	d.accepts.Wait()                    // from here on whoever came in is counted
	go func() { _ = s.Shutdown(ctx) }() // it waits for those who stay
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		d.mu.Lock()
		inside, changed := len(d.inside), d.changed
		d.mu.Unlock()
		if inside <= left && d.Desk.Talking() == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-tick.C: // for the desk
		case <-ctx.Done():
			return fmt.Errorf("%d calls are still under way (as a stop with a long grace): try again when they have ended: %w",
				max(inside-left, 1), ctx.Err())
		}
	}
}

// Close ends what is still answered, within two seconds.
func (d *Door) Close(ctx context.Context) {
	d.mu.Lock()
	s := d.server
	d.mu.Unlock()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = s.Shutdown(ctx)
}
