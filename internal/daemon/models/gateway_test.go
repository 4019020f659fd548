package models

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/config"
	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/testlab"
)

// book keeps what the gateway records, as the ledger does.
type book struct {
	mu      sync.Mutex
	entries []kind.Body
}

func (b *book) record(_ context.Context, _ string, body kind.Body) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, body)
	return nil
}

// spent is what the entries say that was used or is held, in tokens.
func (b *book) spent() (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := map[string]int64{}
	for _, e := range b.entries {
		switch e := e.(type) {
		case *kind.ModelAdmitted:
			held[e.Call] = e.HeldInput + e.HeldOutput
		case *kind.ModelSettled:
			delete(held, e.Call)
			n += e.Input + e.Output
		}
	}
	for _, h := range held {
		n += h
	}
	return n
}

// child is the process of a program that this test started, 0 for none.
func child(t *testing.T, program string) int {
	t.Helper()
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range tasks {
		list, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(list)) {
			name, _ := os.ReadFile("/proc/" + field + "/comm")
			state, _ := os.ReadFile("/proc/" + field + "/stat")
			if strings.TrimSpace(string(name)) == program && !strings.Contains(string(state), ") Z ") {
				pid, _ := strconv.Atoi(field)
				return pid
			}
		}
	}
	return 0
}

// cellOf is a cell whose box is the test: it has a connection to the gateway, and
// another one when the gateway has died.
type cellOf struct {
	gateway *Gateway
	right   right.Model
	conns   chan *h2.Conn
}

func (c *cellOf) connect(ctx context.Context) error {
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	if err := c.gateway.Serve(ctx, "cell", c.right, ours); err != nil {
		return err
	}
	_ = ours.Close()
	n, err := net.FileConn(theirs)
	if err != nil {
		return err
	}
	conn, err := h2.New(n)
	c.conns <- conn
	return err
}

// call makes one call of a model, and gives the status.
func call(t *testing.T, conn *h2.Conn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	body := `{"model":"coder","max_tokens":40,"messages":[{"role":"user","content":"hello"}]}`
	s, err := conn.Post(ctx, "mesh.skep.alt", "/v1/chat/completions", []h2.Field{{Name: "content-type", Value: "application/json"}}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	status, err := s.Status()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, s)
	return status
}

// A skep-model that is killed under a running cell is followed by another one, which the
// cell has without a word of its own, and with what is left of its budget: however often
// it dies, the limit is not passed.
func TestAnotherGatewayTakesTheCells(t *testing.T) {
	program := testlab.Built(t, "skep-model")
	script := filepath.Join(t.TempDir(), "script.yaml")
	text := strings.Repeat("- {reply: {text: \"done as asked, in some words\"}}\n", 200)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	quiet, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	b := &book{}
	const limit = 1200
	tokens := right.AtMost(limit)
	c := &cellOf{right: right.Model{Roles: []string{"coder"}, Tokens: tokens}, conns: make(chan *h2.Conn, 1)}
	c.gateway = &Gateway{
		Program: program, Record: b.record, Stderr: quiet, Log: slog.New(slog.DiscardHandler), Lost: c.connect,
		Load: func() (*config.Config, error) {
			return &config.Config{
				Targets: []config.Target{{Name: "scripted", Kind: config.Script, Script: script}},
				Roles:   []config.Role{{Name: "coder", Targets: []string{"scripted"}}},
			}, nil
		},
	}
	t.Cleanup(func() { _ = c.gateway.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.connect(ctx); err != nil {
		t.Fatal(err)
	}
	conn, calls := <-c.conns, 0
	for deaths := range 3 {
		for range 2 {
			if status := call(t, conn); status != "200" {
				t.Fatalf("after %d deaths: %s", deaths, status)
			}
			calls++
		}
		pid := child(t, "skep-model")
		if pid == 0 {
			t.Fatal("there is no skep-model")
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case conn = <-c.conns:
		case <-ctx.Done():
			t.Fatal("no other skep-model took the cell")
		}
	}
	for calls < 200 && call(t, conn) == "200" {
		calls++
	}
	if n := b.spent(); calls == 200 || n > limit || n < limit/4 {
		t.Errorf("%d calls spent %d of %d", calls, n, limit)
	}
	if err := c.gateway.End(ctx, "cell"); err != nil {
		t.Error(err)
	}
	if pid := child(t, "skep-model"); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if c.gateway.wanted() {
		t.Error("another one is started for no cell")
	}
}

// Whatever the entries say: what is left and what is spent or held are the limit.
func TestLeftIsWhatNobodyHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, a := &book{}, &accounts{}
		a.open("cell")
		limit := rapid.Int64Range(0, 10_000).Draw(t, "limit")
		for i := range rapid.IntRange(0, 40).Draw(t, "entries") {
			name := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "call"))
			var body kind.Body = &kind.ModelAdmitted{Call: name + "-" + fmt.Sprint(i), HeldInput: rapid.Int64Range(0, 300).Draw(t, "held"), HeldOutput: 16}
			if open := b.open(); len(open) > 0 && rapid.Bool().Draw(t, "ends") {
				body = &kind.ModelSettled{Call: open[0], Outcome: "done", Input: rapid.Int64Range(0, 100).Draw(t, "in"), Output: 3}
			}
			_ = b.record(context.Background(), "cell", body)
			a.count("cell", body)
		}
		left, money := a.of("cell").left(right.Model{Tokens: right.AtMost(limit), Money: right.AtMost(7)})
		if want := max(0, limit-b.spent()); left != want || money != 7 {
			t.Fatalf("%d tokens and %d are left, want %d", left, money, want)
		}
	})
}

// open are the calls without an end.
func (b *book) open() (list []string) {
	for _, e := range b.entries {
		switch e := e.(type) {
		case *kind.ModelAdmitted:
			list = append(list, e.Call)
		case *kind.ModelSettled:
			for i, c := range list {
				if c == e.Call {
					list = append(list[:i:i], list[i+1:]...)
					break
				}
			}
		}
	}
	return list
}

// A call of which nobody knows the outcome keeps its hold; one that was refused before it
// was made costs nothing.
func TestUnknownOutcomesStayHeld(t *testing.T) {
	a := &accounts{}
	a.open("cell")
	a.count("cell", &kind.ModelAdmitted{Call: "1", HeldInput: 10, HeldOutput: 20, HeldMicroUSD: 5})
	a.count("cell", &kind.ModelSettled{Call: "1", Outcome: "uncertain"})
	a.count("cell", &kind.ModelSettled{Call: "never", Outcome: "refused", Input: 7})
	a.count("another", &kind.ModelAdmitted{Call: "2", HeldInput: 10})
	tokens, money := a.of("cell").left(right.Model{Tokens: right.AtMost(100), Money: right.AtMost(100)})
	if tokens != 70 || money != 95 {
		t.Errorf("%d tokens, %d", tokens, money)
	}
	a.close("cell")
	if tokens, _ := a.of("cell").left(right.Model{Tokens: right.AtMost(100)}); tokens != 100 {
		t.Errorf("an ended cell has %d", tokens)
	}
}

// One that dies at once is not started without end.
func TestDeathsArePacedOut(t *testing.T) {
	var d deaths
	now := time.Now()
	var all time.Duration
	for range 30 {
		p := d.next(now)
		now = now.Add(p)
		all += p
	}
	if all < 10*time.Minute || d.pause != maxPause {
		t.Errorf("30 starts in %s", all)
	}
	if p := d.next(now.Add(time.Hour)); p != firstPause {
		t.Errorf("an hour later: %s", p)
	}
}
