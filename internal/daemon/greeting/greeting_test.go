package greeting

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/client"
)

func TestVersionsAreNegotiated(t *testing.T) {
	for _, c := range []struct{ cmin, cmax, smin, smax, want int32 }{
		{1, 1, 1, 1, 1},
		{1, 2, 1, 1, 1}, // a newer client
		{1, 2, 2, 3, 2}, // the server serves M and M-1
		{2, 3, 1, 2, 2},
		{1, 1, 2, 3, 0}, // two behind
		{3, 4, 1, 2, 0},
		{2, 1, 1, 2, 0},
		{0, 0, 1, 1, 0},
	} {
		if got := negotiate(c.cmin, c.cmax, c.smin, c.smax); got != c.want {
			t.Errorf("client %d..%d, server %d..%d: %d, want %d", c.cmin, c.cmax, c.smin, c.smax, got, c.want)
		}
	}
	if apiMin > apiMax || apiMax-apiMin > 1 || apiMax > 1 && apiMin != apiMax-1 {
		t.Errorf("this daemon serves %d..%d, not its version and the one before", apiMin, apiMax)
	}
}

// A call that brings its greeting is refused before it is read, in the words of Version.
func TestCallWithItsGreeting(t *testing.T) {
	state := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(state, link); err != nil {
		t.Fatal(err)
	}
	g := Greeting{Version: "v", State: state}
	calls := 0
	server := httptest.NewServer(g.Check(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ })))
	defer server.Close()
	_, words := g.Answer(context.Background(), connect.NewRequest(&skepv1.VersionRequest{ApiMin: 7, ApiMax: 9}))
	for name, c := range map[string]struct {
		api, state string
		code       connect.Code
	}{
		"none":          {"", "", 0},
		"ours":          {"1-1", state, 0},
		"newer too":     {"1-7", link, 0},
		"only newer":    {"7-9", state, connect.CodeFailedPrecondition},
		"no versions":   {"one", state, connect.CodeInvalidArgument},
		"another state": {"1-1", t.TempDir(), connect.CodeFailedPrecondition},
		"no directory":  {"1-1", "/nowhere", connect.CodeFailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			calls = 0
			err := g.fits(http.Header{client.HeaderAPI: {c.api}, client.HeaderState: {c.state}})
			if c.code == 0 != (err == nil) || err != nil && connect.CodeOf(err) != c.code {
				t.Errorf("got %v", err)
			}
			if c.api == "7-9" && err.Error() != words.Error() {
				t.Errorf("%v, and Version says %v", err, words)
			}
			q, err := http.NewRequest(http.MethodPost, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set(client.HeaderAPI, c.api)
			q.Header.Set(client.HeaderState, c.state)
			r, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			if calls > 0 != (c.code == 0) {
				t.Errorf("%d calls", calls)
			}
		})
	}
}
