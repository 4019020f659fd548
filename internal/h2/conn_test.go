package h2

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/h2/frame"
)

// against serves h by net/http and gives a client's connection to it.
func against(t *testing.T, h http.HandlerFunc) *Conn {
	t.Helper()
	ln := listen(t)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: &protocols}
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Close() })
	return client(t, ln)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func client(t *testing.T, ln net.Listener) *Conn {
	t.Helper()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(nc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func post(ctx context.Context, c *Conn, body []byte) (string, []byte, error) {
	s, err := c.Post(ctx, "skepd", "/p", []Field{{"content-type", "application/proto"}}, body)
	if err != nil {
		return "", nil, err
	}
	defer s.Close()
	status, err := s.Status()
	if err != nil {
		return "", nil, err
	}
	got, err := io.ReadAll(s)
	return status, got, err
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Bodies beyond every window come back exactly, many at once.
func TestBodiesAreExact(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Host != "skepd" || r.URL.Path != "/p" || r.Header.Get("Content-Type") != "application/proto" {
			t.Errorf("%+v", r)
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Write(b)
	})
	ctx := within(t)
	var wait sync.WaitGroup
	for i := range 30 {
		wait.Go(func() {
			want := bytes.Repeat([]byte{byte(i), byte(i >> 1), 7}, i*i*1000)
			status, got, err := post(ctx, c, want)
			if err != nil || status != "200" || !bytes.Equal(got, want) {
				t.Errorf("%d: status %s, %d of %d bytes, %v", i, status, len(got), len(want), err)
			}
		})
	}
	wait.Wait()
	if len(c.streams) != 0 {
		t.Errorf("%d streams are kept", len(c.streams))
	}
}

// A stream that nobody reads stops its sender, and nobody else.
func TestBackPressure(t *testing.T) {
	wrote := make(chan int, 1)
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if len(b) > 0 {
			return
		}
		n := 0
		for chunk := make([]byte, 4096); r.Context().Err() == nil && n < 64<<20; {
			m, err := w.Write(chunk)
			if n += m; err != nil {
				break
			}
		}
		wrote <- n
	})
	s, err := c.Post(within(t), "skepd", "/p", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Status(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, _, err := post(within(t), c, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	held := s.body.Len()
	c.mu.Unlock()
	if held > frame.FirstWindow {
		t.Errorf("%d bytes are kept for a reader that does not read", held)
	}
	s.Close()
	if n := <-wrote; n >= 64<<20 {
		t.Error("the sender was not stopped")
	}
}

func TestDeadlineAndCancel(t *testing.T) {
	gone := make(chan struct{}, 1)
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := post(ctx, c, []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the server was not told")
	}
}

func TestEndOfThePeerEndsStreams(t *testing.T) {
	var inside sync.WaitGroup
	inside.Add(1)
	ln := listen(t)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside.Done()
		<-r.Context().Done()
	})}
	go func() { _ = s.Serve(ln) }()
	c := client(t, ln)
	got := make(chan error, 1)
	go func() { _, _, err := post(within(t), c, nil); got <- err }()
	inside.Wait()
	s.Close()
	if err := <-got; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if _, err := c.Post(context.Background(), "skepd", "/p", nil, nil); err == nil {
		t.Error("a connection that ended takes a request")
	}
}

// A head over more than one frame, padding, interim answers and trailers are read.
func TestLargeHeadAndTrailers(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-End")
		for i := range 8 {
			w.Header().Set(fmt.Sprint("X-Large-", i), string(bytes.Repeat([]byte{'q'}, 1500)))
		}
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(418)
		io.WriteString(w, "tea")
		w.Header().Set("X-End", "1")
	})
	if status, got, err := post(within(t), c, nil); status != "418" || string(got) != "tea" || err != nil {
		t.Errorf("%s %q %v", status, got, err)
	}
}

// Do sends its body while the answer comes, and large heads both ways.
func TestDo(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "PUT" || len(r.Header.Get("X-Long")) != 40000 || r.ContentLength != -1 {
			t.Errorf("%s, %d bytes, length %d", r.Method, len(r.Header.Get("X-Long")), r.ContentLength)
		}
		w.Header().Set("X-Back", r.Header.Get("X-Long"))
		w.WriteHeader(http.StatusAccepted)
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(flushing{w}, r.Body)
	})
	body, w := io.Pipe()
	s, err := c.Do(within(t), Request{Method: "PUT", Authority: "a", Path: "/p", Fields: []Field{{"x-long", string(bytes.Repeat([]byte{'z'}, 40000))}}, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		fmt.Fprintf(w, "piece %d\n", i)
		got := make([]byte, 8)
		if _, err := io.ReadFull(s, got); err != nil || string(got) != fmt.Sprintf("piece %d\n", i) {
			t.Fatalf("%q %v", got, err)
		}
	}
	w.Close()
	if rest, err := io.ReadAll(s); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
	<-s.Sent()
	status, err := s.Status()
	fields, err2 := s.Fields()
	back := 0
	for _, f := range fields {
		if f.Name == "x-back" {
			back = len(f.Value)
		}
	}
	if status != "202" || back != 40000 || err != nil || err2 != nil {
		t.Errorf("%s, %d bytes, %v %v", status, back, err, err2)
	}
	s.Close()
}

type flushing struct{ w http.ResponseWriter }

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	f.w.(http.Flusher).Flush()
	return n, err
}

// A body that breaks off breaks its request off, and no other.
func TestBrokenBody(t *testing.T) {
	seen := make(chan error, 1)
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		if r.Method == "PUT" {
			seen <- err
		}
	})
	body, w := io.Pipe()
	s, err := c.Do(within(t), Request{Method: "PUT", Authority: "a", Path: "/p", Body: body})
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "half")
	w.CloseWithError(io.ErrUnexpectedEOF)
	if _, err := s.Status(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
	if err := <-seen; err == nil {
		t.Error("the server took half a body for a whole one")
	}
	if _, _, err := post(within(t), c, []byte("x")); err != nil {
		t.Error(err)
	}
}

// TestMalformedFramesEndTheConnection is the attack: whatever is no HTTP/2 for a
// client ends everything, and nothing waits for ever.
func TestMalformedFramesEndTheConnection(t *testing.T) {
	length := func(n uint32, kind byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, n<<8|uint32(kind)), 0, 0, 0, 0, 1)
	}
	for name, raw := range map[string][]byte{
		"too large":            length(frame.MaxSize+1, frame.Data),
		"push":                 frame.Append(nil, frame.Push, frame.EndHeaders, 1, []byte{0, 0, 0, 2}),
		"padding":              frame.Append(nil, frame.Data, frame.Padded, 1, []byte{9, 1}),
		"no padding":           frame.Append(nil, frame.Data, frame.Padded, 1, nil),
		"priority":             frame.Append(nil, frame.Headers, frame.Priority|frame.EndHeaders, 1, []byte{1}),
		"head":                 frame.Append(nil, frame.Headers, frame.EndHeaders, 1, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"head of nobody":       frame.Append(nil, frame.Headers, frame.EndHeaders, 0, []byte{0x88}),
		"lone continuation":    frame.Append(nil, frame.Continuation, frame.EndHeaders, 1, []byte{0x88}),
		"interrupted head":     frame.Append(frame.Append(nil, frame.Headers, 0, 1, []byte{0x88}), frame.Ping, 0, 0, make([]byte, 8)),
		"settings":             frame.Append(nil, frame.Settings, 0, 0, []byte{0, 4, 0}),
		"reset":                frame.Append(nil, frame.Reset, 0, 1, []byte{1}),
		"window":               frame.Append(nil, frame.WindowUpdate, 0, 0, []byte{1}),
		"go away":              frame.Append(nil, frame.GoAway, 0, 0, make([]byte, 8)),
		"cut off":              frame.Append(nil, frame.Data, 0, 1, []byte("abc"))[:10],
		"more than the window": bytes.Repeat(frame.Append(nil, frame.Data, 0, 1, make([]byte, frame.MaxSize)), 5),
		"endless head":         append(frame.Append(nil, frame.Headers, 0, 1, make([]byte, frame.MaxSize)), bytes.Repeat(frame.Append(nil, frame.Continuation, 0, 1, make([]byte, frame.MaxSize)), 4)...),
	} {
		t.Run(name, func(t *testing.T) {
			ln := listen(t)
			go func() {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				go io.Copy(io.Discard, nc)
				nc.Write(frame.Append(nil, frame.Settings, 0, 0, nil))
				nc.Write(raw)
				nc.(*net.TCPConn).CloseWrite()
			}()
			c := client(t, ln)
			if _, _, err := post(within(t), c, []byte("x")); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		})
	}
}
