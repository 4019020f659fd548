package connector

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// guest answers handshakes in an agent's directory, and then each request by its name.
func (l *lab) guest(id string) net.Listener {
	l.t.Helper()
	dir := filepath.Join(l.Dir, id)
	if err := Directory(dir, Ours); err != nil {
		l.t.Fatal(err)
	}
	g, err := net.Listen("unix", filepath.Join(dir, "guest.sock"))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { g.Close() })
	go func() {
		for {
			c, err := g.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for _, answer := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + id} {
					for line := ""; line != "\r\n"; {
						var err error
						if line, err = r.ReadString('\n'); err != nil {
							return
						}
					}
					_, _ = io.WriteString(c, answer)
				}
			}()
		}
	}()
	return g
}

func serving(id, serves string) []byte {
	return []byte("version: v1\nagent: {id: " + id + "}\nserves: " + serves + "\n")
}

// call sends one request to an ingress socket.
func (l *lab) call(socket string) string {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	all, _ := io.ReadAll(c)
	return string(all)
}

// B170, B172, B210: Attach gives an agent that serves a socket for its callers, where no cell
// can put another; each reaches its own agent; Status tells; Detach leaves nothing (B162).
func TestServes(t *testing.T) {
	l := newLab(t)
	if _, err := l.Attach(t.Context(), "b", serving("a.example", "{name: a, port: 8080}"), Life{}); !errors.Is(err, ErrNoReverse) { // BI-7
		t.Errorf("without a reverse channel: %v", err)
	}
	l.Guest = "guest.sock"
	sockets := map[string]string{}
	for _, id := range []string{"a.example", "b.example"} {
		l.guest(id)
		a, err := l.Attach(t.Context(), "b", serving(id, "{name: a, port: 8080}"), Life{})
		if err != nil {
			t.Fatal(err)
		}
		sockets[id] = a.Ingress
		if strings.HasPrefix(a.Ingress, filepath.Join(l.Dir, id)) || filepath.Dir(a.Ingress) == filepath.Dir(a.Egress) {
			t.Errorf("callers come to %s, in the cell's own directory", a.Ingress)
		}
		if info, err := os.Stat(a.Ingress); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
	}
	for id, socket := range sockets {
		if got := l.call(socket); !strings.HasSuffix(got, "\r\n\r\n"+id) {
			t.Errorf("%s answers %q", id, got)
		}
	}
	again, err := l.Attach(t.Context(), "b", serving("a.example", "{name: a, port: 8080}"), Life{})
	if err != nil || again.Ingress != sockets["a.example"] {
		t.Errorf("%+v, %v", again, err)
	}
	for _, serves := range []string{"{name: a, port: 8081}", "{name: b, port: 8080}", "{name: a, port: 8080, credentials: forward}"} {
		if _, err := l.Attach(t.Context(), "b", serving("a.example", serves), Life{}); err == nil || !strings.Contains(err.Error(), "fixed before it runs") {
			t.Errorf("%s was registered at run time: %v", serves, err)
		}
	}
	if _, err := l.Attach(t.Context(), "b", l.bundle("a.example"), Life{}); err == nil {
		t.Error("what an agent serves was taken back under it")
	}
	for end := time.Now().Add(10 * time.Second); ; {
		s, err := l.Status(t.Context(), "a.example")
		if err == nil && s[0].Advertised && s[0].Ingress == sockets["a.example"] {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if err := l.Detach(t.Context(), "a.example"); err != nil {
		t.Error(err)
	}
	if got := l.call(sockets["a.example"]); strings.HasPrefix(got, "HTTP/") {
		t.Errorf("a detached agent answers %q", got)
	}
	if got := l.call(sockets["b.example"]); !strings.HasSuffix(got, "b.example") {
		t.Errorf("the other one answers %q", got)
	}
	in := 0
	for _, r := range l.kinds("a.example") {
		if r["direction"] == "in" && r["rule"] == "serves" && r["destination"] == "127.0.0.1:8080" {
			in++
		}
	}
	if in < 2 {
		t.Errorf("%d records of deliveries", in)
	}
}
