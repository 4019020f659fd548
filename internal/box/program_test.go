package box

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/testlab"
)

// TestProgramWorksConfined runs skep-box itself, as it ships: everything that it
// does for a cell must pass its own filter.
func TestProgramWorksConfined(t *testing.T) {
	program := testlab.Built(t, "skep-box")
	port := echoAt(t, public4+":0")
	var said bytes.Buffer
	l := startAs(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Model: true, Rules: []*skepv1.BoxRule{
		nameRule("ok.test", public4, port), nameRule("gone.test", "", 443),
	}}, Resolver: &skepv1.ResolverUpdate{Resolvers: []string{"127.0.0.1:9"}}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello from the gateway")
	}), func(ctx context.Context, c Config) error {
		p := exec.CommandContext(ctx, program)
		p.ExtraFiles = []*os.File{c.Daemon, c.Warden, c.Lifeline, c.Model}
		p.Stderr = &said
		p.Env = []string{}
		err := p.Start()
		sys.CloseAll(p.ExtraFiles)
		if err != nil {
			return err
		}
		return p.Wait()
	})
	dst := netip.AddrPortFrom(l.resolve("ok.test", false), port).String()
	for range 20 {
		c, err := l.dial(dst)
		if err != nil {
			t.Fatal(err)
		}
		says(t, c, "hello")
		go func() { _, _ = io.CopyN(c, zeroes{}, 8<<20) }()
		if n, err := io.CopyN(io.Discard, c, 8<<20); err != nil {
			t.Fatalf("%d bytes back: %v", n, err)
		}
		c.Close()
	}
	c, err := l.dial(netip.AddrPortFrom(l.resolve(name.Model, false), 80).String())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n")
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(a.Body); string(body) != "hello from the gateway" {
		t.Errorf("%q", body)
	}
	c.Close()
	if c, err = l.dial(netip.AddrPortFrom(l.resolve("gone.test", false), 443).String()); err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("an unreachable resolver: %v", err)
	}
	if _, err := l.dial("9.9.9.9:443"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
	l.finish()
	reasons := map[string]int{}
	for _, r := range l.daemon.all() {
		reasons[fmt.Sprint(r.Kind, r.Reason)]++
	}
	if reasons["KIND_OUTCOME"] != 21 || reasons["KIND_OUTCOMEresolve-failed"] != 1 || reasons["KIND_DENIEDip-not-on-allowlist"] != 1 {
		t.Errorf("%v", reasons)
	}
	if said.Len() > 0 {
		t.Errorf("the box said %q", said.String())
	}
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { clear(b); return len(b), nil }
