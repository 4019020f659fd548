package door

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/client"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/sys"
)

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

func (clock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// house is a door with a server of calls that the test holds.
type house struct {
	skepv1connect.UnimplementedSkepHandler
	door   *Door
	socket string
	desk   string

	entered chan struct{}
	release chan struct{}
}

func (h *house) Version(context.Context, *connect.Request[skepv1.VersionRequest]) (*connect.Response[skepv1.VersionResponse], error) {
	return connect.NewResponse(&skepv1.VersionResponse{Version: "v"}), nil
}

func (h *house) Get(context.Context, *connect.Request[skepv1.GetRequest]) (*connect.Response[skepv1.Cell], error) {
	h.entered <- struct{}{}
	<-h.release
	return connect.NewResponse(&skepv1.Cell{Id: "held"}), nil
}

func (h *house) Logs(ctx context.Context, _ *connect.Request[skepv1.LogsRequest], out *connect.ServerStream[skepv1.LogChunk]) error {
	if err := out.Send(&skepv1.LogChunk{Data: []byte("a")}); err != nil {
		return err
	}
	select {
	case <-h.door.Leaving():
		return ErrAgain
	case <-ctx.Done():
		return ctx.Err()
	}
}

func open(t *testing.T) (*house, skepv1connect.SkepClient) {
	t.Helper()
	dir := t.TempDir()
	h := &house{socket: filepath.Join(dir, "api"), desk: filepath.Join(dir, "fd"), entered: make(chan struct{}), release: make(chan struct{})}
	api, err := sys.ListenUnix(h.socket, sys.Stream)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := sys.ListenUnix(h.desk, sys.Seqpacket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(skepv1connect.NewSkepHandler(h))
	me := uint32(os.Getuid())
	h.door = New(Config{
		API: api, FDs: fds, Desk: handover.NewDesk(clock{}, me), Handler: mux, Owners: []uint32{me}, Log: slog.New(slog.DiscardHandler),
	})
	if err := h.door.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.door.Close(context.Background())
		_ = errors.Join(api.Close(), fds.Close())
	})
	return h, client.New(h.socket)
}

// Who comes while the door is shut waits, on old connections and on new ones, at the API
// and at the desk; who is inside goes first; who follows goes on after it.
func TestNobodyIsRefusedWhileItIsShut(t *testing.T) {
	h, c := open(t)
	ctx := context.Background()
	version := func() error {
		_, err := c.Version(ctx, connect.NewRequest(&skepv1.VersionRequest{}))
		return err
	}
	if err := version(); err != nil {
		t.Fatal(err)
	}
	followed, err := c.Logs(ctx, connect.NewRequest(&skepv1.LogsRequest{}))
	if err != nil || !followed.Receive() {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() {
		_, err := c.Get(ctx, connect.NewRequest(&skepv1.GetRequest{}))
		held <- err
	}()
	<-h.entered

	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := h.door.Shut(brief, 0); err == nil {
		t.Error("it was left while a call was under way")
	}
	if followed.Receive() || !client.IsAgain(followed.Err()) {
		t.Errorf("the stream ended with %v", followed.Err())
	}
	close(h.release)
	if err := <-held; err != nil {
		t.Error(err)
	}
	if err := h.door.Open(); err != nil {
		t.Fatal(err)
	}
	if err := version(); err != nil {
		t.Fatal(err)
	}
	if err := h.door.Shut(ctx, 0); err != nil {
		t.Fatal(err)
	}
	var outside sync.WaitGroup
	came := make(chan error, 16)
	for i := range 8 {
		outside.Go(func() {
			if i%2 == 0 {
				came <- version()
				return
			}
			f, err := os.Open("/")
			if err == nil {
				_, err = handover.Offer(h.desk, []handover.Role{{Role: handover.RolePath, Path: "/"}}, []*os.File{f})
				_ = f.Close()
			}
			came <- err
		})
	}
	select {
	case err := <-came:
		t.Errorf("somebody came in: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := h.door.Open(); err != nil {
		t.Fatal(err)
	}
	outside.Wait()
	for len(came) > 0 {
		if err := <-came; err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-h.door.Failed():
		t.Error(err)
	default:
	}
}

// A call on a connection from before, which the server had not closed yet, is made again.
func TestOldConnectionsAreLeft(t *testing.T) {
	h, _ := open(t)
	h.door.mu.Lock()
	close(h.door.leaving) // as the moment before the connections are closed
	h.door.mu.Unlock()
	c := client.New(h.socket)
	answer := make(chan error, 1)
	go func() {
		_, err := c.Version(context.Background(), connect.NewRequest(&skepv1.VersionRequest{}))
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Errorf("it was answered: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	h.door.mu.Lock()
	h.door.leaving = make(chan struct{})
	h.door.mu.Unlock()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	e, err := client.Follow(context.Background(), h.socket, "", "c")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.Receive() || connect.CodeOf(e.Err()) != connect.CodeUnimplemented || errors.Is(e.Err(), io.EOF) {
		t.Errorf("it ended with %v", e.Err())
	}
}
