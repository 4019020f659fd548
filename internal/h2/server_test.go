package h2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/h2/frame"
)

// echoing serves on one end of a pair: it answers each call with its body, what came
// together by one write.
func echoing(t *testing.T) (*Server, net.Conn) {
	t.Helper()
	ln := listen(t)
	there, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(here)
	var waiting []*Call
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(func(c *Call) { waiting = append(waiting, c) }, func() {
			var out []byte
			for _, c := range waiting {
				status := 200
				if c.Path != "/p" || c.Content != "application/proto" {
					status = 404
				}
				out = c.AppendAnswer(out, status, c.Content, c.Body)
			}
			waiting = nil
			_ = s.Send(out)
		})
	}()
	t.Cleanup(func() { _ = s.Close(); _ = there.Close(); <-done })
	return s, there
}

// Our client and net/http's get what they sent, many at once.
func TestServerAnswersBothClients(t *testing.T) {
	_, there := echoing(t)
	c, err := New(there)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for i := range 12 {
		wait.Go(func() {
			want := bytes.Repeat([]byte{byte(i)}, i*900)
			status, got, err := post(within(t), c, want)
			if err != nil || status != "200" || !bytes.Equal(got, want) {
				t.Errorf("%d: %s, %d of %d bytes, %v", i, status, len(got), len(want), err)
			}
		})
	}
	wait.Wait()

	_, there = echoing(t)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	h := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) { return there, nil }}
	defer h.CloseIdleConnections()
	for i := range 12 { // beyond the first, heads refer to the table
		wait.Go(func() {
			r, err := (&http.Client{Transport: h}).Post("http://skepd/p", "application/proto", strings.NewReader(fmt.Sprint("body ", i)))
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			if got, err := io.ReadAll(r.Body); err != nil || string(got) != fmt.Sprint("body ", i) || r.StatusCode != 200 {
				t.Errorf("%s: %q, %v", r.Status, got, err)
			}
		})
		wait.Wait()
	}
}

// A call tells once, also where the connection ends or the peer refuses.
func TestCallTellsOnce(t *testing.T) {
	_, there := echoing(t)
	c, err := New(there)
	if err != nil {
		t.Fatal(err)
	}
	head := NewHead(Request{Method: "POST", Authority: "skepd", Path: "/p", Fields: []Field{{"content-type", "application/proto"}}})
	large := bytes.Repeat([]byte("x"), 3<<20) // beyond the window that a client knows at first
	for _, body := range [][]byte{nil, []byte("small"), large} {
		told := make(chan Answer, 2)
		if err := c.Call(head, body, func(a Answer) { told <- a }); err != nil {
			t.Fatal(err)
		}
		a := <-told
		if whole := a.Err == nil && a.Status == "200" && bytes.Equal(a.Body, body); whole != (len(body) < frame.MaxSize) {
			t.Errorf("%d bytes: %s, %d bytes back, %v", len(body), a.Status, len(a.Body), a.Err)
		}
	}
	if len(c.streams) != 0 {
		t.Errorf("%d streams are kept", len(c.streams))
	}

	silent := client(t, listen(t)) // nobody answers
	told := make(chan Answer, 100)
	for range 50 {
		if err := silent.Call(head, []byte("x"), func(a Answer) { told <- a }); err != nil {
			t.Fatal(err)
		}
	}
	_ = silent.Close()
	for range 50 {
		if a := <-told; !errors.Is(a.Err, net.ErrClosed) || a.Status != "" {
			t.Errorf("%+v", a)
		}
	}
	if err := silent.Call(head, nil, func(a Answer) { told <- a }); err == nil || len(told) > 0 {
		t.Errorf("a connection that ended took a call: %v, %d told", err, len(told))
	}
}

// Parts of an answer wait for their reader, and for nothing else.
func TestServerStreams(t *testing.T) {
	ln := listen(t)
	c := client(t, ln)
	here, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(here)
	wrote := make(chan error, 1)
	go func() {
		_ = s.Run(func(c *Call) {
			if len(c.Body) == 0 {
				_ = c.Answer(200, "text/plain", []byte("now"))
				return
			}
			c.Go(func() {
				err := c.Begin("text/plain")
				for i := 0; err == nil && i < 1<<10; i++ {
					err = c.Part(make([]byte, 10<<10), false)
				}
				if err == nil {
					err = c.Part(nil, true)
				}
				wrote <- err
			})
		}, func() {})
	}()
	defer s.Close()
	stream, err := c.Post(within(t), "skepd", "/p", nil, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := post(within(t), c, nil); err != nil || string(got) != "now" {
		t.Errorf("a call beside the stream got %q, %v", got, err)
	}
	if n, err := io.Copy(io.Discard, stream); err != nil || n != 10<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}

	// One that its caller leaves ends, and says so.
	stream, err = c.Post(within(t), "skepd", "/p", nil, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Status(); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	if err := <-wrote; err == nil {
		t.Error("a stream without a reader was written to its end")
	}
}

// TestMalformedFramesEndTheServer is the attack: what is no request ends the
// connection, holds nothing, and hands nothing over.
func TestMalformedFramesEndTheServer(t *testing.T) {
	block := appendHead(nil, []Field{{":method", "POST"}, {":path", "/p"}, {"content-type", "application/proto"}})
	open := frame.AppendBlock(nil, 0, 1, block)
	whole := frame.AppendBlock(nil, frame.EndStream, 1, block)
	var many []byte
	for range maxRequest/frame.MaxSize + 1 {
		many = frame.Append(many, frame.Data, 0, 1, make([]byte, frame.MaxSize))
	}
	for name, raw := range map[string][]byte{
		"no preface":            []byte("GET / HTTP/1.1\r\nHost: skepd\r\n\r\n"),
		"too large":             append([]byte(frame.Preface), 0, 0x40, 1, frame.Data, 0, 0, 0, 0, 1),
		"push":                  frame.Append([]byte(frame.Preface), frame.Push, frame.EndHeaders, 1, []byte{0, 0, 0, 2}),
		"even stream":           append([]byte(frame.Preface), frame.AppendBlock(nil, frame.EndStream, 2, block)...),
		"head of nobody":        append([]byte(frame.Preface), frame.AppendBlock(nil, frame.EndStream, 0, block)...),
		"lone continuation":     frame.Append([]byte(frame.Preface), frame.Continuation, frame.EndHeaders, 1, block),
		"broken head":           append([]byte(frame.Preface), frame.AppendBlock(nil, frame.EndStream, 1, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})...),
		"second head":           bytes.Join([][]byte{[]byte(frame.Preface), open, open}, nil),
		"data after the end":    bytes.Join([][]byte{[]byte(frame.Preface), whole, frame.Append(nil, frame.Data, 0, 1, []byte("x"))}, nil),
		"trailers after an end": bytes.Join([][]byte{[]byte(frame.Preface), whole, whole}, nil),
		"more than the window":  bytes.Join([][]byte{[]byte(frame.Preface), open, many}, nil),
		"window":                frame.Append([]byte(frame.Preface), frame.WindowUpdate, 0, 0, []byte{1}),
		"settings":              frame.Append([]byte(frame.Preface), frame.Settings, 0, 0, []byte{0, 4, 0}),
		"reset":                 frame.Append([]byte(frame.Preface), frame.Reset, 0, 1, []byte{1}),
		"go away":               frame.Append([]byte(frame.Preface), frame.GoAway, 0, 0, make([]byte, 8)),
	} {
		t.Run(name, func(t *testing.T) {
			ln := listen(t)
			there, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer there.Close()
			here, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, there) }()
			go func() { _, _ = there.Write(raw) }()
			handed := 0
			if err := NewServer(here).Run(func(*Call) { handed++ }, func() {}); err == nil {
				t.Error("it goes on")
			}
			if want := strings.Count(name, "after"); handed != want {
				t.Errorf("%d calls were handed over", handed)
			}
		})
	}
}

// More calls than there may be are refused one by one.
func TestServerBoundsCalls(t *testing.T) {
	ln := listen(t)
	c := client(t, ln)
	here, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(here)
	var held []*Call
	go func() { _ = s.Run(func(c *Call) { held = append(held, c) }, func() {}) }()
	defer s.Close()
	head := NewHead(Request{Method: "POST", Authority: "skepd", Path: "/p"})
	told := make(chan Answer, maxPlaces+1)
	for range maxPlaces + 1 {
		if err := c.Call(head, []byte("x"), func(a Answer) { told <- a }); err != nil {
			t.Fatal(err)
		}
	}
	if a := <-told; a.Err == nil {
		t.Errorf("%+v", a)
	}
	if len(told) > 0 {
		t.Error("more than one was refused")
	}
}

// A call that is taken back has its place while its handler runs.
func TestServerCountsWhatRuns(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	go func() { _, _ = io.Copy(io.Discard, there) }()
	block := appendHead(nil, []Field{{":method", "POST"}, {":path", "/p"}})
	raw := []byte(frame.Preface)
	for i := range uint32(maxResets) + 1 {
		raw = frame.AppendBlock(raw, frame.EndStream, 2*i+1, block)
		raw = frame.AppendNumber(raw, frame.Reset, 2*i+1, frame.CodeCancel)
	}
	go func() { _, _ = there.Write(raw) }()
	release := make(chan struct{})
	var runs sync.WaitGroup
	begun := 0
	err := NewServer(here).Run(func(c *Call) {
		begun++
		runs.Add(1)
		c.Go(func() {
			defer runs.Done()
			<-release
		})
	}, func() {})
	close(release)
	runs.Wait()
	if begun != maxPlaces || !errors.Is(err, errFrame) {
		t.Errorf("%d handlers ran, there are %d places: %v", begun, maxPlaces, err)
	}
}

// Who does not read what it asked for is cut off.
func TestServerEndsWithAClientThatDoesNotRead(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	s := NewServer(here)
	s.within = time.Millisecond
	go func() { _, _ = there.Write([]byte(frame.Preface)) }()
	if err := s.Run(func(*Call) {}, func() {}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func FuzzServer(f *testing.F) {
	block := appendHead(nil, []Field{{":method", "POST"}, {":path", "/p"}})
	f.Add(frame.Append(frame.AppendBlock(nil, 0, 1, block), frame.Data, frame.EndStream, 1, []byte("x")))
	f.Add(frame.Append(nil, frame.Settings, 0, 0, []byte{0, 4, 0, 0, 255, 255}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		go func() {
			_, _ = there.Write(append([]byte(frame.Preface), raw...))
			_ = there.Close()
		}()
		s := NewServer(here)
		_ = s.Run(func(c *Call) { _ = c.Answer(200, c.Content, c.Body) }, func() {})
	})
}
