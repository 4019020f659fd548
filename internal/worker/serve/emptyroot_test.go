package serve

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// lookAround is what this test's binary does where it is all that there is.
const lookAround = "SKEP_SERVE_TEST_LOOK"

func TestMain(m *testing.M) {
	if os.Getenv(lookAround) == "" {
		os.Exit(m.Run())
	}
	for _, dir := range []string{"/", ".", "../.."} {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			_, _ = os.Stdout.WriteString(e.Name() + " ")
		}
		if err != nil {
			_, _ = os.Stdout.WriteString(err.Error())
		}
	}
	for what, err := range map[string]error{
		"make a directory": os.Mkdir("/x", 0o700), "write the program": os.Chmod(boxInRoot, 0o777),
		"remove the program": os.Remove(boxInRoot), "mount": syscall.Mount("none", "/", "tmpfs", 0, ""),
	} {
		if err == nil {
			_, _ = os.Stdout.WriteString("it could " + what + " ")
		}
	}
	os.Exit(0)
}

// A program that a capable worker starts as a box finds itself and nothing else, at
// every start, while the worker keeps the tree of the host.
func TestBoxStartsInAnEmptyRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("an ordinary user's box keeps the tree, behind Landlock (B15)")
	}
	// Built as programs are: a dynamic one would need libraries that are not there.
	program := filepath.Join(t.TempDir(), "serve.test")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	e, err := newEmptyRoot(program)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	for range 2 {
		var out bytes.Buffer
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := &exec.Cmd{
			Path: boxInRoot, Args: []string{boxInRoot}, Dir: "/", Env: []string{lookAround + "=1"}, Stdin: e.null, Stdout: write, Stderr: write,
			SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}},
		}
		e.do(func() { err = cmd.Start() })
		_ = write.Close()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.ReadFrom(read)
		_ = read.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if got := strings.TrimSpace(out.String()); got != "skep-box skep-box skep-box" {
			t.Errorf("it found %q", got)
		}
	}
	if root, err := os.ReadDir("/proc/self/root"); err != nil || len(root) < 2 {
		t.Errorf("the worker itself has left the tree: %v, %v", root, err)
	}
}
