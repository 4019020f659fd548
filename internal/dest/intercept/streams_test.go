package intercept

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skep.dev/skep/internal/flow"
)

// A call of gRPC as its clients make it: each message is answered before the next is
// sent, and the status comes in a trailer (BS-10).
func TestCallsWithTrailers(t *testing.T) {
	l := newLab(t, http2, "api.test", []string{"bearer"}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("Content-Type", "application/grpc")
		_ = http.NewResponseController(w).EnableFullDuplex()
		for {
			head := make([]byte, 5)
			if _, err := io.ReadFull(r.Body, head); err != nil {
				break
			}
			text := make([]byte, head[4])
			_, _ = io.ReadFull(r.Body, text)
			_, _ = w.Write(append(head, text...))
			w.(http.Flusher).Flush()
		}
		w.Header().Set("Grpc-Status", map[bool]string{true: "0", false: "16"}[r.Header.Get("Authorization") == "Bearer "+value])
	})
	in, out := io.Pipe()
	r, err := http.NewRequest("POST", l.url("/service/Method"), in)
	check(t, err)
	r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Authorization": {"Bearer " + mark}}
	answers := make(chan *http.Response, 1)
	go func() {
		answer, err := l.client.Do(r)
		if err != nil {
			t.Error(err)
		}
		answers <- answer
	}()
	var answer *http.Response
	for i, text := range []string{"one", "ends with " + value[:4], "three"} {
		message := append([]byte{0, 0, 0, 0, byte(len(text))}, text...)
		_, err := out.Write(message)
		check(t, err)
		if i == 0 {
			if answer = <-answers; answer == nil {
				return
			}
			defer answer.Body.Close()
		}
		got := make([]byte, len(message))
		if _, err := io.ReadFull(answer.Body, got); err != nil || !bytes.Equal(got, message) {
			t.Errorf("%q %v", got, err)
		}
	}
	check(t, out.Close())
	if rest, err := io.ReadAll(answer.Body); err != nil || len(rest) > 0 || answer.Trailer.Get("Grpc-Status") != "0" || answer.ProtoMajor != 2 {
		t.Errorf("%q %v, status %q", rest, err, answer.Trailer.Get("Grpc-Status"))
	}
}

// Many streams of one connection do not mix: each gets its own answer, and those that
// are refused cost the others nothing (B127).
func TestParallelStreams(t *testing.T) {
	l := newLab(t, http2, "api.test", []string{"bearer", "json:token"}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Auth", fmt.Sprint(r.Header.Get("Authorization") == "Bearer "+value))
		_, _ = io.Copy(w, r.Body)
	})
	if status, _, _ := l.do("GET", "/", nil); status != 200 { // so that there is one connection
		t.Fatal(status)
	}
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			body, want := strings.Repeat(fmt.Sprint(i, "."), i*i*20), ""
			var fields []string
			switch want = body; i % 4 {
			case 1:
				fields = append(fields, "Authorization: Bearer "+mark)
			case 2:
				fields = append(fields, "Content-Type: application/json")
				body = fmt.Sprintf(`{"token":"none","pad":"%s"}`, body)
				want = body
			case 3:
				fields = append(fields, "Cookie: "+mark)
			}
			status, got, answer := l.do("POST", "/", strings.NewReader(body), fields...)
			switch {
			case i%4 == 3 && status != 403, i%4 != 3 && (status != 200 || got != want || answer.Header.Get("X-Auth") != fmt.Sprint(i%4 == 1)):
				t.Errorf("%d: %d, %d bytes of %d, %.80s", i, status, len(got), len(want), got)
			}
		})
	}
	all.Wait()
	l.client.CloseIdleConnections()
	if end := <-l.ends; end.Reason != flow.SecretMisplaced {
		t.Errorf("%+v", end)
	}
	if l.has(mark) || len(l.ends) > 0 {
		t.Error("a placeholder has arrived, or there was a second connection")
	}
}

// Events of ten minutes over HTTP/2, with gaps (N06, BS-10).
func TestEventsOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := setup{signed: "api.test", as: []string{"bearer"}, alpn: []string{http2}, memory: true}.build(t, func(w http.ResponseWriter, _ *http.Request) {
			for i := range 20 {
				time.Sleep(30 * time.Second) //nolint:forbidigo // the test's own clock
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
			}
		})
		begun := time.Now()
		answer, err := l.client.Get(l.url("/events"))
		check(t, err)
		defer answer.Body.Close()
		in := bufio.NewReader(answer.Body)
		for i := range 20 {
			line, err := in.ReadString('\n')
			_, _ = in.ReadString('\n')
			if due := time.Duration(i+1) * 30 * time.Second; err != nil || line != fmt.Sprintf("data: %d\n", i) || time.Since(begun) != due {
				t.Fatalf("%q after %s, %v", line, time.Since(begun), err)
			}
		}
		if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
			t.Errorf("%q %v", rest, err)
		}
		l.client.CloseIdleConnections()
	})
}

// The agent is offered what the destination has chosen of what the agent can speak (B126).
func TestChosenProtocol(t *testing.T) {
	for _, c := range []struct {
		up    []string
		agent bool // it can speak HTTP/2
		want  int
	}{
		{[]string{http2, http1}, true, 2}, {[]string{http2, http1}, false, 1}, {[]string{http1}, true, 1}, {[]string{http2}, true, 2}, {nil, true, 1},
	} {
		l := setup{signed: "api.test", as: []string{"bearer"}, alpn: c.up}.build(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Proto)
		})
		l.client.Transport.(*http.Transport).ForceAttemptHTTP2 = c.agent
		status, text, answer := l.do("GET", "/", nil)
		if status != 200 || answer.ProtoMajor != c.want || text != fmt.Sprintf("HTTP/%d.%d", c.want, 2-c.want) {
			t.Errorf("%v: %d %q by %v", c.up, status, text, answer)
		}
	}
}

// BenchmarkIdleFlow tells what one idle flow costs the box, with the agent's end and the
// destination's in the same process taken off as well as can be: less than what it says.
func BenchmarkIdleFlow(b *testing.B) {
	for _, protocol := range []string{http1, http2} {
		b.Run(protocol, func(b *testing.B) {
			l := setup{signed: "api.test", as: []string{"bearer"}, alpn: []string{protocol}}.build(b, func(http.ResponseWriter, *http.Request) {})
			measure := func() int64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc + m.StackInuse)
			}
			one := func() *http.Client {
				c := *l.client
				c.Transport = l.client.Transport.(*http.Transport).Clone()
				answer, err := c.Get(l.url("/"))
				check(b, err)
				_ = answer.Body.Close()
				return &c
			}
			defer one().CloseIdleConnections()
			before := measure()
			var all []*http.Client
			for range 80 {
				all = append(all, one())
			}
			cost := float64(measure()-before) / 80 / 1024
			for b.Loop() {
			}
			b.ReportMetric(cost, "KiB/flow")
			for _, c := range all {
				c.CloseIdleConnections()
			}
		})
	}
}
