package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"skep.dev/skep/internal/model/script"
)

// The sample's whole journey without a cell: the agent and the scripted model
// repair the sample. Needs only go and sh.
func TestAgentRepairsTheSample(t *testing.T) {
	t.Setenv("GOTOOLCHAIN", "local")
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOPROXY", "off")
	dir := t.TempDir()
	setup := exec.Command("../sample/setup.sh", dir)
	setup.Env = append(os.Environ(), "NOGIT=1")
	if out, err := setup.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := goTest(dir); err == nil {
		t.Fatal("the sample's test passes before the repair")
	}
	url := serveScript(t, "../sample/script.yaml")
	var out bytes.Buffer
	a := agent{client: client{baseURL: url, model: "coder"}, dir: dir, steps: 20, out: &out}
	if err := a.run(t.Context(), "make the tests pass"); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if err := goTest(dir); err != nil {
		t.Errorf("the test fails after the repair: %v\n%s", err, out.String())
	}
	if text := out.String(); !strings.Contains(text, "ok  \texample.org/stats") || !strings.Contains(text, "Done: Median") {
		t.Errorf("output:\n%s", text)
	}
}

func goTest(dir string) error {
	cmd := exec.Command("go", "test", "./...")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(string(out))
	}
	return nil
}

// serveScript serves a script whose forbidden attempt goes to a closed port of the
// loopback, as a test sends nothing out.
func serveScript(t *testing.T, file string) (url string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(t.TempDir(), "script.yaml")
	b = bytes.ReplaceAll(b, []byte("exfil.example/80"), []byte("127.0.0.1/1"))
	if err := os.WriteFile(here, b, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- script.Serve(ctx, ln, here) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String() + "/v1"
}

func TestLoopIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "loop.yaml")
	os.WriteFile(file, []byte("- times: 100\n  reply: {tool_calls: [{name: list_dir, arguments: {path: .}}]}\n"), 0o600)
	a := agent{client: client{baseURL: serveScript(t, file), model: "m"}, dir: t.TempDir(), steps: 3, out: io.Discard}
	if err := a.run(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "not done after 3") {
		t.Errorf("got %v", err)
	}
}

func TestBrokenAnswersAreErrors(t *testing.T) {
	for name, stream := range map[string]string{
		"cut off":      `data: {"choices":[{"delta":{"content":"x"}}]}` + "\n\n",
		"server error": `data: {"error":{"message":"busy"}}` + "\n\n",
		"no JSON":      "data: x\n\n",
		"wild index":   `data: {"choices":[{"delta":{"tool_calls":[{"index":99999999}]}}]}` + "\n\n",
	} {
		if _, err := read(iotest.OneByteReader(strings.NewReader(stream)), io.Discard); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestToolFaultsAreResults(t *testing.T) {
	a := agent{dir: t.TempDir(), out: io.Discard}
	for name, call := range map[string]function{
		"no JSON":      {Name: "read_file", Arguments: "{"},
		"no such tool": {Name: "fly", Arguments: "{}"},
		"no such file": {Name: "read_file", Arguments: `{"path":"nowhere"}`},
		"exit status":  {Name: "run_command", Arguments: `{"command":"echo out; exit 3"}`},
	} {
		if got := a.do(t.Context(), toolCall{Function: call}); !strings.Contains(got, "error: ") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
