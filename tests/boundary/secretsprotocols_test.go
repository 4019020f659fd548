package boundary

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
)

func poolOf(pem []byte) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(pem)
	return p
}

// protocols is a destination that has something of every way to speak, for who shows the
// value.
func (v *vault) protocols(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/socket" {
		v.socket(w, r)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+v.value {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch r.URL.Path {
	case "/upload":
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n)
	case "/events":
		eventServer(20, 1e7)(w, r)
	case "/call":
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		buf := make([]byte, 1024)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				break
			}
		}
		w.Header().Set("Grpc-Status", "0")
	}
}

// socket answers each frame with its own, and a message with the value by a welcome.
func (v *vault) socket(w http.ResponseWriter, r *http.Request) {
	c, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	extensions := r.Header.Get("Sec-WebSocket-Extensions")
	if extensions != "" {
		extensions = "Sec-WebSocket-Extensions: " + extensions + "\r\n" // which must not have been offered
	}
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"+extensions+"\r\n")
	for {
		first, payload, err := readFrame(in)
		if err != nil {
			return
		}
		switch {
		case first == 0x89:
			first = 0x8a
		case string(payload) == "auth "+v.value:
			payload = []byte("welcome")
		}
		if _, err := c.Write(frame(first, nil, payload)); err != nil {
			return
		}
	}
}

// TestBS10Protocols: what works with a host without a secret works with one, by
// HTTP/1.1 and HTTP/2: large uploads with 100-continue, with a length or in chunks, events with gaps, calls
// with trailers, WebSockets. Ten minutes of events have a clock of their own beside the code.
func TestBS10Protocols(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		v := secretive(t, lab, "net: [{name: api.test}]\nsecrets: [{name: gh, source: \"file:FILE\", hosts: [api.test], as: [bearer, ws], env: K}]\n")
		lab.HTTP2("93.184.216.34:443", http.HandlerFunc(v.protocols))
		for _, r := range v.try(attempt{How: "with a secret", At: "api.test:443", Say: "http/1.1"}, attempt{How: "with a secret", At: "api.test:443", Say: "h2"}) {
			if r.Got != "works" || r.Err != "" {
				t.Errorf("%s: %q %s", r.Say, r.Got, r.Err)
			}
		}
		if why := v.reasons(); len(why) > 0 {
			t.Errorf("the record has %v", why)
		}
		if strings.Contains(strings.Join(v.said("Authorization"), ""), "skep-secret") {
			t.Error("a placeholder has arrived")
		}
	})
}

// TestBS3SocketsC09: a placeholder in a message of a WebSocket that no place is in ends it, and is recorded.
func TestBS3SocketsC09(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		v := secretive(t, lab, "net: [{name: api.test}]\nsecrets: [{name: gh, source: \"file:FILE\", hosts: [api.test], as: [bearer], env: K}]\n")
		lab.HTTP2("93.184.216.34:443", http.HandlerFunc(v.protocols))
		if r := v.try(attempt{How: "with a secret", At: "api.test:443", Say: "http/1.1"})[0]; r.Err != "ECONNRESET" {
			t.Errorf("%+v", r)
		}
		if why := v.reasons(); why["secret-misplaced"] != 1 || len(why) != 1 {
			t.Errorf("the record has %v", why)
		}
	})
}
