package handover

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"skep.dev/skep/internal/sys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is turned by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
	due []func()
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) AfterFunc(_ time.Duration, f func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = append(c.due, f)
	return func() {}
}

func (c *clock) turn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *clock) fire() {
	c.mu.Lock()
	due := c.due
	c.due = nil
	c.mu.Unlock()
	for _, f := range due {
		f()
	}
}

func uid() uint32 { return uint32(os.Getuid()) }

func open(t *testing.T, owners ...uint32) (*Desk, *clock, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fd.sock")
	l, err := sys.ListenUnix(path, sys.Seqpacket)
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{now: time.Unix(1000, 0)}
	d := NewDesk(c, owners...)
	done := make(chan error, 1)
	go func() { done <- d.Serve(l) }()
	t.Cleanup(func() {
		d.Close()
		_ = l.Close()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return d, c, path
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

func offer(t *testing.T, path string) (string, *os.File) {
	t.Helper()
	r, w := pipe(t)
	ticket, err := Offer(path, []Role{{Role: "path", Path: "/x"}}, []*os.File{w})
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	return ticket, r
}

func TestOfferedDescriptorArrives(t *testing.T) {
	d, _, path := open(t, uid())
	ticket, r := offer(t, path)
	b, err := d.Take(ticket, uid())
	if err != nil {
		t.Fatal(err)
	}
	f := b.Take("path", "/x")
	if f == nil || b.Take("path", "/x") != nil || b.Take("stdio", "") != nil {
		t.Fatal("not exactly the role that was offered")
	}
	_, _ = io.WriteString(f, "through")
	_ = f.Close()
	b.Close()
	if got, _ := io.ReadAll(r); string(got) != "through" {
		t.Errorf("read %q", got)
	}
}

func TestTicketIsGoodOnceForItsUserInTime(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(d *Desk, c *clock, ticket string)
		uid   uint32
		want  error
	}{
		"good":         {func(*Desk, *clock, string) {}, uid(), nil},
		"another user": {func(*Desk, *clock, string) {}, uid() + 1, ErrTicket},
		"twice": {func(d *Desk, _ *clock, ticket string) {
			if b, err := d.Take(ticket, uid()); err == nil {
				b.Close()
			}
		}, uid(), ErrTicket},
		"just in time": {func(_ *Desk, c *clock, _ string) { c.turn(Valid - 1) }, uid(), nil},
		"expired":      {func(_ *Desk, c *clock, _ string) { c.turn(Valid) }, uid(), ErrTicket},
		"swept":        {func(_ *Desk, c *clock, _ string) { c.fire() }, uid(), ErrTicket},
		"another user tried before": {func(d *Desk, _ *clock, ticket string) {
			_, _ = d.Take(ticket, uid()+1)
		}, uid(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			d, clock, path := open(t, uid())
			ticket, _ := offer(t, path)
			c.spoil(d, clock, ticket)
			b, err := d.Take(ticket, c.uid)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			b.Close()
		})
	}
}

func TestSweptDescriptorsAreClosed(t *testing.T) {
	_, c, path := open(t, uid())
	_, r := offer(t, path)
	c.fire()
	if got, err := io.ReadAll(r); len(got) > 0 || err != nil { // returns at all: the write end is closed
		t.Errorf("read %q, %v", got, err)
	}
}

func TestLeftDescriptorIsFetchedOnceByItsUser(t *testing.T) {
	d, _, path := open(t, uid())
	_, w := pipe(t)
	dup, err := sys.Duplicate(w)
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := d.Leave(uid(), Bundle{Roles: []Role{{Role: "layer"}}, Files: []*os.File{dup}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Take(ticket, uid()); !errors.Is(err, ErrTicket) {
		t.Errorf("what was left for a fetch was taken as an offer: %v", err)
	}
	b, err := Fetch(path, ticket)
	if err != nil || b.Take("layer", "") == nil {
		t.Fatalf("got %v, %v", b, err)
	}
	b.Close()
	if _, err := Fetch(path, ticket); err == nil {
		t.Error("fetched twice")
	}
	offered, _ := offer(t, path)
	if _, err := Fetch(path, offered); err == nil {
		t.Error("an offer was fetched back")
	}
}

// Whoever was to fetch something and has gone leaves nothing open.
func TestWithdrawnTicketIsClosed(t *testing.T) {
	d, _, socket := open(t, uid())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ticket, err := d.Leave(uid(), Bundle{Roles: []Role{{Role: RoleLayer}}, Files: []*os.File{w}})
	if err != nil {
		t.Fatal(err)
	}
	d.Withdraw("another")
	d.Withdraw(ticket)
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("it is open: %v", err)
	}
	if b, err := Fetch(socket, ticket); err == nil {
		b.Close()
		t.Error("it is fetched")
	}
}

func TestWrongPeerIsHungUpOn(t *testing.T) {
	_, _, path := open(t, uid()+1)
	_, w := pipe(t)
	if ticket, err := Offer(path, []Role{{Role: "path"}}, []*os.File{w}); err == nil {
		t.Errorf("a stranger got ticket %s", ticket)
	}
}

func TestStrictMessages(t *testing.T) {
	d, _, path := open(t, uid())
	for name, c := range map[string]struct {
		msg   string
		files int
	}{
		"no JSON":                   {"hello", 0},
		"unknown field":             {`{"v":1,"op":"offer","roles":[{"role":"path"}],"extra":1}`, 1},
		"unknown field of a role":   {`{"v":1,"op":"offer","roles":[{"role":"path","mode":1}]}`, 1},
		"other version":             {`{"v":2,"op":"offer","roles":[{"role":"path"}]}`, 1},
		"role without descriptor":   {`{"v":1,"op":"offer","roles":[{"role":"path"},{"role":"path"}]}`, 1},
		"descriptor without role":   {`{"v":1,"op":"offer","roles":[{"role":"path"}]}`, 2},
		"nothing":                   {`{"v":1,"op":"offer"}`, 0},
		"fetch with a descriptor":   {`{"v":1,"op":"fetch","ticket":"x"}`, 1},
		"unknown operation":         {`{"v":1,"op":"take","roles":[{"role":"path"}]}`, 1},
		"bytes after the end":       {`{"v":1,"op":"fetch","ticket":"x"} {}`, 0},
		"offer that names a ticket": {`{"v":1,"op":"offer","roles":[{"role":"path"}],"ticket":"x"}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := sys.ConnectUnix(path, sys.Seqpacket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			r, w := pipe(t)
			files := make([]*os.File, c.files)
			for i := range files {
				files[i] = w
			}
			if err := sys.SendFDs(conn, []byte(c.msg), files...); err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			buf := make([]byte, MaxMessage)
			n, got, err := sys.RecvFDs(conn, buf, MaxFiles)
			if err != nil || len(got) > 0 || !strings.HasPrefix(string(buf[:n]), `{"error":`) {
				t.Errorf("answered %q with %d descriptors, %v", buf[:n], len(got), err)
			}
			// Nothing of a refused message stays open.
			_ = r.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.ReadAll(r); err != nil {
				t.Errorf("a descriptor is kept: %v", err)
			}
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) > 0 {
		t.Errorf("%d tickets wait", len(d.waiting))
	}
}

func TestTicketsAreBounded(t *testing.T) {
	_, _, path := open(t, uid())
	_, w := pipe(t)
	for range maxTickets {
		if _, err := Offer(path, []Role{{Role: "path"}}, []*os.File{w}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Offer(path, []Role{{Role: "path"}}, []*os.File{w}); err == nil || !strings.Contains(err.Error(), ErrFull.Error()) {
		t.Errorf("got %v", err)
	}
}
