package testlab

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Lab is one test's internet. Its servers stand until the test ends.
type Lab struct {
	t  testing.TB
	ca *authority

	mu          sync.Mutex
	zones       map[string]*zone
	queries     []Query
	connections []*Connection
	requests    []Request
	datagrams   []Datagram
	changed     chan struct{} // closed, and made anew, at each record
}

// New returns an internet with a name server and nothing else. The package's
// TestMain must have called Run; the test is skipped where the host has no namespaces.
func New(t testing.TB) *Lab {
	t.Helper()
	switch os.Getenv(stageVariable) {
	case stageInside:
	case stageAbsent:
		t.Skipf("no network namespace can be made here: %s", os.Getenv(labDirVariable))
	default:
		t.Fatal("testlab.New without testlab.Run: call it in TestMain")
	}
	l := &Lab{t: t, zones: map[string]*zone{}, changed: make(chan struct{})}
	l.serveNames()
	return l
}

// Program returns a command that runs one of the built programs in the lab. It
// skips the test where the program is not built.
func (l *Lab) Program(name string, args ...string) *exec.Cmd {
	l.t.Helper()
	return l.Command(Built(l.t, name), args...)
}

// Command returns a command that runs in the lab, and ends with the test.
func (l *Lab) Command(path string, args ...string) *exec.Cmd {
	ctx, stop := context.WithCancel(context.Background())
	l.t.Cleanup(stop)
	return exec.CommandContext(ctx, path, args...)
}

// Built returns the path of a built program: in the directory that SKEP_BIN
// names, else in bin/ of the tree. It skips the test where there is none.
func Built(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("SKEP_BIN")
	if dir == "" {
		up, err := os.Getwd()
		for err == nil && up != "/" {
			if _, e := os.Stat(filepath.Join(up, "go.mod")); e == nil {
				break
			}
			up = filepath.Dir(up)
		}
		dir = filepath.Join(up, "bin")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not built: run make build", name)
	}
	return path
}

// Await waits until holds returns true; it is asked again after each record.
func (l *Lab) Await(what string, holds func() bool) {
	l.t.Helper()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			l.t.Fatalf("waited 20 s for %s", what)
		}
	}
}

// record changes what the lab has seen, under its lock.
func (l *Lab) record(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// listen returns a TCP listener, closed at the test's end.
func (l *Lab) listen(at string) (net.Listener, netip.AddrPort) {
	l.t.Helper()
	ln, err := net.Listen("tcp", at)
	if errors.Is(err, syscall.EADDRINUSE) {
		l.t.Fatalf("listen on %s: another test of this package serves there; labs are not for parallel tests", at)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = ln.Close() })
	return ln, ln.Addr().(*net.TCPAddr).AddrPort()
}

// canonical is a name as the record shows it: lower case, no final dot.
func canonical(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }
