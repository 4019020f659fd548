package intercept

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
)

// Trailers pass both ways, looked at like all else.
func TestTrailers(t *testing.T) { both(t, testTrailers) }

func testTrailers(t *testing.T, protocol string) {
	l := newLab(t, protocol, "api.test", []string{"bearer"}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "body "+value[:6])
		w.Header().Set("X-Sum", r.Trailer.Get("X-Sum"))
		if r.URL.Path == "/leak" {
			w.Header().Set("X-Sum", value)
		}
	})
	send := func(path, sum string) (*http.Response, string, error) {
		r, err := http.NewRequest("POST", l.url(path), io.MultiReader(strings.NewReader("text")))
		check(t, err)
		r.Trailer = http.Header{"X-Sum": {sum}}
		answer, err := l.client.Do(r)
		if err != nil {
			return nil, "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return answer, string(text), err
	}
	answer, text, err := send("/", "12")
	if err != nil || text != "body "+value[:6] || answer.Trailer.Get("X-Sum") != "12" {
		t.Errorf("%q, %v", text, err)
	}
	if answer, _, err := send("/", mark); err != nil || answer.StatusCode != 403 || l.has(mark) {
		t.Errorf("a placeholder in a trailer: %v, %v", answer, err)
	}
	if protocol == http1 {
		if end := <-l.ends; end.Reason != flow.SecretMisplaced {
			t.Error(end.Reason.Token())
		}
	}
	if answer, _, err := send("/leak", "12"); err == nil || answer != nil && answer.Trailer.Get("X-Sum") == value {
		t.Error("the value comes in a trailer")
	}
	if end := <-l.ends; end.Reason != flow.SecretReflected {
		t.Error(end.Reason.Token())
	}
}

// What frames a message is no trailer.
func TestTrailersFrameNothing(t *testing.T) {
	h, err := readAnswer(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")))
	check(t, err)
	body := h.body(bufio.NewReader(strings.NewReader("0\r\nContent-Length: 3\r\nX: y\r\nhost: other.test\r\nTransfer-encoding: chunked\r\n\r\n")))
	_, _ = io.ReadAll(body)
	if got := string(trailer(body)); got != "X: y\r\n" {
		t.Errorf("%q", got)
	}
}

// Uploads of any size, by a client of somebody else's (N07, BS-10).
func TestCurlUploads(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl here")
	}
	for name, c := range map[string]struct {
		alpn []string
		most int
		args []string
	}{
		"1.1":         {[]string{"http/1.1"}, 2 << 20, []string{"--http1.1"}},
		"2":           {[]string{http2}, 2 << 20, []string{"--http2"}},
		"2, large":    {[]string{http2, http1}, 50 << 20, []string{"--http2"}},
		"1.1, chunks": {[]string{"http/1.1"}, 50 << 20, []string{"--http1.1", "-H", "Transfer-Encoding: chunked"}},
	} {
		l := setup{signed: "api.test", as: []string{"bearer"}, alpn: c.alpn}.build(t, func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprintf(w, "%d %v %t", n, err, r.Header.Get("Authorization") == "Bearer "+value)
		})
		for _, size := range []int{1 << 10, 135 << 10, c.most} {
			if got := l.curl(make([]byte, size), slices.Concat(c.args, []string{"-H", "Authorization: Bearer " + mark, "-H", "Expect: 100-continue", "--data-binary", "@-"})...); got != fmt.Sprintf("%d <nil> true", size) {
				t.Errorf("%s, %d bytes: %s", name, size, got)
			}
		}
	}
}

// curl runs one through the gate and returns what it prints.
func (l *lab) curl(in []byte, args ...string) string {
	l.t.Helper()
	dir := l.t.TempDir()
	check(l.t, writeFile(dir+"/root.pem", l.secrets.Authority.Root()))
	port, stop := l.door()
	defer stop()
	command := exec.Command("curl", slices.Concat([]string{"-sS", "-m", "60", "--cacert", dir + "/root.pem", "--connect-to", fmt.Sprintf("::127.0.0.1:%d", port)}, args, []string{l.url("/")})...)
	command.Stdin = bytes.NewReader(in)
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s (%v)", out, err)
	}
	return string(out)
}

// The first byte of an event passes within two milliseconds, at the median (B128).
func BenchmarkEvent(b *testing.B) {
	for _, alpn := range []string{http1, http2} {
		b.Run(alpn, func(b *testing.B) {
			more, sent := make(chan bool), make(chan time.Time, 1)
			l := setup{signed: "api.test", as: []string{"bearer"}, alpn: []string{alpn}}.build(b, func(w http.ResponseWriter, _ *http.Request) {
				w.(http.Flusher).Flush()
				for range more {
					sent <- time.Now()
					_, _ = io.WriteString(w, "data: 0123456789 0123456789 0123456789\n\n")
					w.(http.Flusher).Flush()
				}
			})
			answer, err := l.client.Get(l.url("/"))
			check(b, err)
			defer answer.Body.Close()
			in := bufio.NewReader(answer.Body)
			var took []time.Duration
			for b.Loop() {
				more <- true
				_, err := in.ReadByte()
				took = append(took, time.Since(<-sent))
				check(b, err)
				_, _ = in.ReadString('\n')
				_, _ = in.ReadString('\n')
			}
			close(more)
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
		})
	}
}

// What is read whole has room for all flows of a cell together, and gives it back.
func TestBodiesHaveRoom(t *testing.T) {
	l := newLab(t, http1, "api.test", []string{"json:token"}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})
	text, form := `{"a":1}`, "Content-Type: application/json"
	if !l.secrets.held.Take(maxHeld - 4*len(text)) {
		t.Fatal("there is no room at all")
	}
	for range 3 {
		if status, got, _ := l.do("POST", "/", strings.NewReader(text), form); status != 200 || got != text {
			t.Errorf("%d %q", status, got)
		}
	}
	if status, _, _ := l.do("POST", "/", strings.NewReader(text+" "), form); status != 503 {
		t.Errorf("without room: %d", status)
	}
	<-l.ends
	l.secrets.open.Store(maxCarried)
	if status, _, _ := l.do("GET", "/", nil); status != 0 {
		t.Errorf("one flow too many: %d", status)
	}
}
