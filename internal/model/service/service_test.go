package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/budget"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/model/control"
	"skep.dev/skep/internal/sys"
)

// As "confined" the test binary is skep-model itself, in every step that main
// takes but for its transport, which is package provider's in main.
func TestMain(m *testing.M) {
	switch os.Getenv("SKEP_MODEL_TEST") {
	case "confined":
		sock, err := sys.Inherited(3, "control")
		if err == nil {
			err = Confine()
		}
		if err == nil {
			err = Run(sock, "run", plainTransport, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "attack":
		attack()
	}
	os.Exit(m.Run())
}

func plainTransport(string) (http.RoundTripper, error) {
	return &http.Transport{DisableCompression: true}, nil
}

// ledger is skepd's record in a test.
type ledger struct {
	mu     sync.Mutex
	bodies []kind.Body
}

func (l *ledger) record(_ context.Context, _ string, b kind.Body) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bodies = append(l.bodies, b)
	return nil
}

func (l *ledger) all() []kind.Body {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bodies
}

// inProcess serves without confinement.
func inProcess(t *testing.T, l *ledger) *control.Client {
	a, b, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Run(b, "run", plainTransport, slog.New(slog.DiscardHandler)) }()
	client := control.NewClient(a, l.record)
	t.Cleanup(func() {
		client.Close()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return client
}

func file(t *testing.T, text string) *os.File {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// box connects a cell and returns a client on the box's end.
func box(t *testing.T, c *control.Client, cell control.Cell) *http.Client {
	t.Helper()
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddCell(within(t), cell, theirs); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	ours.Close()
	t.Cleanup(func() { conn.Close() })
	// As a box does: HTTP/2 on the one connection that there is.
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		Protocols:   &protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func ask(c *http.Client, role string) (int, string, error) {
	resp, err := c.Post("http://mesh.skep.alt/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"`+role+`","messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func provider(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"message":{"content":"key of %d bytes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5}}`,
			len(r.Header.Get("Authorization")))
	}))
	t.Cleanup(srv.Close)
	// By name, so that the confined program has to read /etc/hosts.
	return strings.Replace(srv.URL, "127.0.0.1", "localhost", 1) + "/v1"
}

const demo = "- {times: 99, reply: {text: from the script, usage: {input: 3, output: 4}}}"

func config(t *testing.T, url string) control.Config {
	return control.Config{
		Targets: map[string]control.Target{
			"demo": {Script: true, File: file(t, demo)},
			"real": {OpenAI: url, Model: "gpt-x", File: file(t, "sk-1\n"), Price: &control.Price{Version: "v7", Input: 1_000_000, Output: 2_000_000}},
		},
		Roles: map[string][]string{"coder": {"demo"}, "big": {"real"}},
	}
}

func journey(t *testing.T, client *control.Client, l *ledger) {
	if err := client.Config(within(t), config(t, provider(t))); err != nil {
		t.Fatal(err)
	}
	one := box(t, client, control.Cell{ID: "one", Roles: []string{"coder", "big"}, Tokens: 100_000, MicroUSD: 1_000_000})
	if code, got, err := ask(one, "coder"); code != 200 || !strings.Contains(got, "from the script") {
		t.Fatalf("%d %s %v", code, got, err)
	}
	if code, got, _ := ask(one, "big"); code != 200 || !strings.Contains(got, "key of 11 bytes") {
		t.Errorf("%d %s", code, got)
	}
	other := box(t, client, control.Cell{ID: "two", Roles: []string{"coder"}, Tokens: budget.Unlimited, MicroUSD: budget.Unlimited})
	if code, _, _ := ask(other, "big"); code != 404 {
		t.Errorf("a role that is not the cell's: %d", code)
	}
	none := box(t, client, control.Cell{ID: "three", Roles: []string{"coder"}})
	if code, got, _ := ask(none, "coder"); code != 429 {
		t.Errorf("a cell without tokens: %d %s", code, got)
	}
	for _, id := range []string{"one", "two", "three", "never"} {
		if err := client.EndCell(within(t), id); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := ask(one, "coder"); err == nil {
		t.Error("an ended cell was answered")
	}
	entries := l.all()
	if len(entries) != 6 { // two of each answer, and one of each refusal
		t.Fatalf("%d entries: %+v", len(entries), entries)
	}
	if last, ok := entries[3].(*kind.ModelSettled); !ok || last.MicroUSD != 20 || last.Outcome != "done" {
		t.Errorf("%+v", entries[3])
	}
	for i, why := range []string{"model_not_found", "insufficient_quota"} {
		if e, ok := entries[4+i].(*kind.ModelSettled); !ok || e.Outcome != "refused" || e.Reason != why {
			t.Errorf("%+v, want a refusal for %s", entries[4+i], why)
		}
	}
}

func TestJourney(t *testing.T) {
	l := &ledger{}
	journey(t, inProcess(t, l), l)
}

func TestRefusedConfigurationChangesNothing(t *testing.T) {
	client := inProcess(t, &ledger{})
	if err := client.Config(within(t), config(t, "http://127.0.0.1:1/v1")); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]control.Config{
		"key in the clear": {Targets: map[string]control.Target{"x": {OpenAI: "http://api.example/v1", File: file(t, "k")}}},
		"empty key":        {Targets: map[string]control.Target{"x": {OpenAI: "https://api.example/v1", File: file(t, "\n")}}},
		"header in key":    {Targets: map[string]control.Target{"x": {OpenAI: "https://api.example/v1", File: file(t, "a\r\nX: 1")}}},
		"host in path":     {Targets: map[string]control.Target{"x": {OpenAI: "https://api.example/v1%23@evil"}}},
		"both":             {Targets: map[string]control.Target{"x": {Script: true, OpenAI: "https://api.example/v1"}}},
		"no script":        {Targets: map[string]control.Target{"x": {Script: true}}},
		"bad script":       {Targets: map[string]control.Target{"x": {Script: true, File: file(t, "- {}")}}},
		"no such target":   {Roles: map[string][]string{"coder": {"x"}}},
		"role of none":     {Roles: map[string][]string{"coder": {}}},
	} {
		if err := client.Config(within(t), cfg); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	c := box(t, client, control.Cell{ID: "one", Roles: []string{"coder"}, Tokens: 100_000})
	if code, got, _ := ask(c, "coder"); code != 200 {
		t.Errorf("what held before is gone: %d %s", code, got)
	}
}

// skepd configures anew for each cell: another cell's place in its script must
// stay.
func TestUnchangedTargetKeepsItsPlaceInTheScript(t *testing.T) {
	const steps = "- reply: {text: first}\n- {times: 9, reply: {text: second}}"
	client := inProcess(t, &ledger{})
	configure := func(text string) {
		cfg := control.Config{
			Targets: map[string]control.Target{"demo": {Script: true, File: file(t, text)}},
			Roles:   map[string][]string{"coder": {"demo"}},
		}
		if err := client.Config(within(t), cfg); err != nil {
			t.Fatal(err)
		}
	}
	configure(steps)
	c := box(t, client, control.Cell{ID: "one", Roles: []string{"coder"}, Tokens: 1_000_000})
	for _, want := range []string{"first", "second", "second"} {
		if _, got, _ := ask(c, "coder"); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
		configure(steps)
	}
	configure(steps + "\n")
	if _, got, _ := ask(c, "coder"); !strings.Contains(got, "first") {
		t.Errorf("a changed script was not taken: %s", got)
	}
}

// The real program with its walls: a cell's call goes through both targets.
func TestConfinedProgram(t *testing.T) {
	if underRace {
		t.Skip("the race detector makes system calls that the program does not")
	}
	a, b, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SKEP_MODEL_TEST=confined")
	cmd.ExtraFiles = []*os.File{b}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.Close()
	l := &ledger{}
	client := control.NewClient(a, l.record)
	journey(t, client, l)
	client.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs.String())
	}
}

// attack runs in a confined process and prints what it could do.
func attack() {
	if err := Confine(); err != nil {
		fmt.Println("confine:", err)
		os.Exit(0)
	}
	for name, try := range map[string]func() error{
		"exec":        func() error { return exec.Command("/bin/true").Run() },
		"read passwd": func() error { _, err := os.ReadFile("/etc/passwd"); return err },
		"read proc":   func() error { _, err := os.ReadFile("/proc/self/environ"); return err },
		"write file":  func() error { return os.WriteFile(os.TempDir()+"/skep-model-attack", nil, 0o600) },
		"unix socket": func() error { _, err := net.Listen("unix", "@skep-model-attack"); return err },
		"socket pair": func() error { _, _, err := sys.StreamPair(); return err },
		"write hosts": func() error { f, err := os.OpenFile("/etc/hosts", os.O_WRONLY, 0); _ = f; return err },
	} {
		if err := try(); err == nil {
			fmt.Println("could:", name)
		}
	}
	if _, err := os.ReadFile("/etc/hosts"); err != nil && !errors.Is(err, os.ErrNotExist) {
		fmt.Println("could not read /etc/hosts:", err)
	}
	fmt.Println("end")
	os.Exit(0)
}

func TestConfinementHolds(t *testing.T) {
	if underRace {
		t.Skip("the race detector makes system calls that the program does not")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SKEP_MODEL_TEST=attack")
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "end\n" {
		t.Errorf("%v: %s", err, out)
	}
}
