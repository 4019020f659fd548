package npm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/journey"
)

// baseURL is where an agent in a cell finds its model.
const baseURL = "http://mesh.skep.alt/v1"

// written is what the scripts have the agents write to hello.txt.
const written = "hello from the script\n"

// agent is how one works in a cell.
type agent struct {
	script   string            // in this folder
	install  string            // directory that holds it
	programs []string          // directories of other programs that it needs
	path     string            // of its cell
	argv     []string          // its command line
	env      map[string]string // all that is set for it
}

// TestQwenCode: a program of node.
func TestQwenCode(t *testing.T) {
	testlab.Built(t, "skep")
	runtime := filepath.Dir(node(t))
	dir := install(t, "@qwen-code/qwen-code", "0.15.10")
	edit(t, journey.New(t), agent{
		script: "qwen.yaml", install: dir, programs: []string{runtime},
		path: filepath.Join(dir, "node_modules", ".bin") + ":" + runtime + ":/usr/bin:/bin",
		argv: []string{"qwen", "--yolo", "-p", "write hello.txt"},
		env:  map[string]string{"OPENAI_BASE_URL": baseURL, "OPENAI_API_KEY": "dummy", "OPENAI_MODEL": "coder"},
	})
}

// TestOpencode: one large program with a runtime of its own.
func TestOpencode(t *testing.T) {
	if testing.Short() {
		t.Skip("installs 350 MB")
	}
	testlab.Built(t, "skep")
	glibc(t)
	dir := install(t, "opencode-ai", "1.18.33")
	p := journey.New(t)
	config, err := os.ReadFile("opencode.json")
	if err != nil {
		t.Fatal(err)
	}
	p.Write("opencode.json", strings.ReplaceAll(string(config), "@BASE@", baseURL))
	p.Git("add", ".")
	p.Git("commit", "--quiet", "--message=the agent's config")
	edit(t, p, agent{
		script: "opencode.yaml", install: dir,
		path: filepath.Join(dir, "node_modules", ".bin") + ":/usr/bin:/bin",
		argv: []string{"opencode", "run", "-m", "skep/coder", "write hello.txt"},
	})
}

// profile is what an agent that works on a tree needs, and no more.
func (a agent) profile(tree string) string {
	var b strings.Builder
	b.WriteString("version: v1\npaths:\n  - {path: " + tree + ", rights: rw}\n  - {path: " + a.install + ", rights: ro}\n")
	for _, path := range append(a.programs, "/usr", "/bin", "/lib", "/lib64", "/etc/ssl") {
		if _, err := os.Stat(path); err == nil && (path == "/usr" || !strings.HasPrefix(path, "/usr/")) {
			b.WriteString("  - {path: " + path + ", rights: ro}\n")
		}
	}
	b.WriteString("model: {roles: [coder], tokens: 1_000_000}\nbudget: {wall: 3m}\nenv:\n  set:\n    TERM: dumb\n    PATH: \"" + a.path + "\"\n")
	for name, value := range a.env {
		b.WriteString("    " + name + ": \"" + value + "\"\n")
	}
	return b.String()
}

var (
	fullHash = regexp.MustCompile(`(?m)^[0-9a-f]{64}$`)
	asked    = regexp.MustCompile(`(?m)^.* model\.settled +done: .*$`)
)

// edit runs an agent to its end and takes what it wrote, by its hash.
func edit(t *testing.T, p *journey.Person, a agent) {
	script, err := os.ReadFile(a.script)
	if err != nil {
		t.Fatal(err)
	}
	p.Script(strings.ReplaceAll(string(script), "@WORK@", p.Tree), "coder")
	profile := p.Beside("profile.yaml", a.profile(p.Tree))

	said := p.Skep(append([]string{"run", "--yes", "--profile", profile, "--"}, a.argv...)...)
	if !strings.Contains(said, "I wrote hello.txt.") {
		t.Errorf("the agent did not come to the script's end:\n%s", said)
	}

	// The tree is as it was until somebody has read the difference and said yes.
	if status := p.Git("status", "--short"); status != "" {
		t.Errorf("the tree changed before the merge:\n%s", status)
	}
	difference := p.Skep("diff", "last")
	for _, want := range []string{filepath.Join(p.Tree, "hello.txt"), "+" + written} {
		if !strings.Contains(difference, want) {
			t.Errorf("the difference lacks %q:\n%s", want, difference)
		}
	}
	// What an agent leaves in .git is its own (opencode marks the repository there).
	for _, name := range strings.Fields(p.Skep("diff", "last", "--name-only")) {
		if name != filepath.Join(p.Tree, "hello.txt") && !strings.HasPrefix(name, filepath.Join(p.Tree, ".git")+"/") {
			t.Errorf("the difference has %q, too", name)
		}
	}
	if r := p.Try("merge", "last", strings.Repeat("0", 64)); r.Code == 0 {
		t.Error("a hash that nobody was shown was merged")
	}
	p.Skep("merge", "last", fullHash.FindString(difference))
	if got, err := os.ReadFile(filepath.Join(p.Tree, "hello.txt")); err != nil || string(got) != written {
		t.Errorf("the tree has %q, %v", got, err)
	}
	if status := p.Git("status", "--short"); status != "?? hello.txt\n" {
		t.Errorf("the merge changed more than the difference:\n%s", status)
	}

	p.Skep("ledger", "verify")
	record := p.Skep("ledger", "show", "last")
	if calls := asked.FindAllString(record, -1); len(calls) < 2 {
		t.Errorf("%d calls of the model were recorded:\n%s", len(calls), record)
	}
	// Neither agent needs its own servers, and neither reached one.
	if refused := p.Skep("ledger", "show", "last", "--decision", "deny"); !strings.Contains(refused, "not-on-allowlist") {
		t.Errorf("what the agent tried to reach is not in the record:\n%s", record)
	}
	for _, line := range strings.Split(record, "\n") {
		if strings.Contains(line, "flow.intent") && !strings.Contains(line, "mesh.skep.alt:80") {
			t.Errorf("it reached something: %s", line)
		}
	}
}
