package npm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// What the network may take: a probe is short, so that a machine without one is not held up.
const (
	probeTime   = 15 * time.Second
	installTime = 100 * time.Second
)

// install puts a package of npm into the user's cache, once, and returns the
// directory. Its own install scripts run: what they make is part of the agent.
func install(t *testing.T, name, version string) string {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is not installed")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("there is no place to install an agent: %v", err)
	}
	parent := filepath.Join(cache, "skep-test", "npm")
	dir := filepath.Join(parent, strings.ReplaceAll(strings.TrimPrefix(name, "@"), "/", "-")+"-"+version)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	call := func(limit time.Duration, in string, args ...string) (string, error) {
		ctx, stop := context.WithTimeout(context.Background(), limit)
		defer stop()
		c := exec.CommandContext(ctx, npm, args...)
		c.Dir = in // not --prefix, which would also move npm's global config
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := call(probeTime, os.TempDir(), "view", name+"@"+version, "version", "--fetch-retries=0", "--fetch-timeout=10000"); err != nil {
		t.Skipf("npm's registry cannot be reached: %v\n%.500s", err, out)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Skipf("there is no place to install an agent: %v", err)
	}
	// Two tests may install at once; the first to finish wins.
	made, err := os.MkdirTemp(parent, "new-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(made) }()
	if err := os.WriteFile(filepath.Join(made, "package.json"), []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := call(installTime, made, "install", "--fetch-retries=1", "--no-audit", "--no-fund", name+"@"+version); err != nil {
		t.Skipf("npm cannot install %s: %v\n%.500s", name, err, out)
	}
	if err := os.Chmod(made, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(made, dir); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	return dir
}

// node is the real path of a node that is new enough.
func node(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "--eval", "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)").CombinedOutput()
	if err != nil {
		t.Skipf("node is older than 20: %v %s", err, out)
	}
	return path
}

// glibc skips the test where an agent that is one program for it cannot run.
func glibc(t *testing.T) {
	t.Helper()
	loader := map[string]string{"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}[runtime.GOARCH]
	if _, err := os.Stat(loader); err != nil {
		t.Skipf("the agent's program needs glibc on amd64 or arm64: %v", err)
	}
}
