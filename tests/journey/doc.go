// Package journey is a person at a machine, for tests of the built programs: places of
// her own, a config, a tree with a repository, and the commands that she types.
//
// Its laws:
//   - Nothing of the machine's real person is read or changed: state, run and config
//     directories are the test's own.
//   - The daemon starts itself, as it does for everybody, and has ended when the test
//     has: by its id, found by the places that it was started with.
//   - A directory that a cell is shown can be reached by every user, since as root the
//     agent and the daemon are somebody else.
package journey

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
)

// patience bounds one command. A loaded machine needs much of it.
const patience = 4 * time.Minute

// Person has a directory for all that is hers.
type Person struct {
	// Dir holds the places; Tree is a git repository with one commit, elsewhere.
	Dir, Tree string
	// Env is the environment of her commands.
	Env []string
	// Patience bounds one command.
	Patience time.Duration

	t testing.TB
}

// New returns a person without a config. It skips the test where the programs are not built.
func New(t testing.TB) *Person {
	t.Helper()
	testlab.Built(t, "skep")
	return At(t, Directory(t), Directory(t))
}

// At is New with directories that the test has made: in a lab, its own (Lab.Dir).
func At(t testing.TB, dir, tree string) *Person {
	t.Helper()
	programs := filepath.Dir(testlab.Built(t, "skep"))
	for _, program := range []string{"skepd", "skep-worker", "skep-warden", "skep-box", "skep-model"} {
		testlab.Built(t, program)
	}
	p := &Person{Dir: dir, Tree: tree, Env: append(Places(dir), "PATH="+programs+":"+os.Getenv("PATH")), Patience: patience, t: t}
	t.Cleanup(func() {
		if err := EndDaemon(dir); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "run", "skepd.log"))
			t.Logf("skepd's log:\n%s", log)
		}
	})
	p.Git("init", "--quiet", "--initial-branch=main")
	p.Write("README", "a tree\n")
	p.Git("add", ".")
	p.Git("commit", "--quiet", "--message=first")
	return p
}

// Directory makes a directory that every user may pass, removed at the test's end.
func Directory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "skep-journey-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Places are the variables that put all of Skep's places below dir, and a home there.
func Places(dir string) []string {
	return []string{
		"SKEP_STATE=" + filepath.Join(dir, "state"), "SKEP_RUN=" + filepath.Join(dir, "run"),
		"XDG_CONFIG_HOME=" + filepath.Join(dir, "config"), "XDG_STATE_HOME=" + filepath.Join(dir, "own"),
		"HOME=" + filepath.Join(dir, "home"), "TERM=dumb", "LANG=C.UTF-8", "TMPDIR=" + os.TempDir(),
		"GIT_AUTHOR_NAME=a person", "GIT_AUTHOR_EMAIL=person@example.org",
		"GIT_COMMITTER_NAME=a person", "GIT_COMMITTER_EMAIL=person@example.org",
	}
}

// Config writes her config.yaml.
func (p *Person) Config(text string) {
	p.t.Helper()
	p.put(filepath.Join(p.Dir, "config", "skep", "config.yaml"), text)
}

// Script gives every role in roles a scripted model.
func (p *Person) Script(script string, roles ...string) {
	p.t.Helper()
	file := p.Beside("script.yaml", script)
	var lines strings.Builder
	for _, role := range roles {
		lines.WriteString("  " + role + ": [demo]\n")
	}
	p.Config("targets: {demo: {script: " + file + "}}\nroles:\n" + lines.String())
}

// Beside writes a file that is not in the tree, and returns its path.
func (p *Person) Beside(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.Dir, name)
	p.put(path, text)
	return path
}

// Write writes a file of the tree.
func (p *Person) Write(name, text string) {
	p.t.Helper()
	p.put(filepath.Join(p.Tree, name), text)
}

func (p *Person) put(path, text string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// Result is how a command ended.
type Result struct {
	Out, Err string
	Code     int
}

// Try runs skep in the tree, whatever becomes of it.
func (p *Person) Try(args ...string) Result {
	p.t.Helper()
	return p.command("skep", args...)
}

// Skep runs skep in the tree and returns what it printed. It must succeed.
func (p *Person) Skep(args ...string) string {
	p.t.Helper()
	r := p.Try(args...)
	if r.Code != 0 {
		p.t.Fatalf("skep %s ended with %d\n%s%s", strings.Join(args, " "), r.Code, r.Out, r.Err)
	}
	return r.Out
}

// Git runs git in the tree and returns what it printed.
func (p *Person) Git(args ...string) string {
	p.t.Helper()
	r := p.command("git", args...)
	if r.Code != 0 {
		p.t.Fatalf("git %s: %s", strings.Join(args, " "), r.Err)
	}
	return r.Out
}

func (p *Person) command(name string, args ...string) Result {
	p.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), p.Patience)
	defer stop()
	path := name
	if name == "skep" {
		path = testlab.Built(p.t, name)
	}
	c := exec.CommandContext(ctx, path, args...)
	var out, complaint bytes.Buffer
	c.Dir, c.Env, c.Stdout, c.Stderr = p.Tree, p.Env, &out, &complaint
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("run %s: %v", name, err)
	}
	if ctx.Err() != nil {
		p.t.Fatalf("%s %s took more than %s\n%s%s", name, strings.Join(args, " "), p.Patience, out.String(), complaint.String())
	}
	return Result{out.String(), complaint.String(), c.ProcessState.ExitCode()}
}

// With is the same person in a part of the test, which then fails alone.
func (p *Person) With(t testing.TB) *Person {
	other := *p
	other.t = t
	return &other
}
