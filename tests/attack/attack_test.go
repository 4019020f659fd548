package attack

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// program is the variable by which a test in a lab of its own finds the attacker
// that was compiled outside.
const program = "SKEP_ATTACKER"

// TestMain compiles the attacker, once for all tests.
func TestMain(m *testing.M) {
	if os.Getenv(program) != "" {
		os.Exit(m.Run())
	}
	dir, err := compile()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compile the attacker:", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// compile makes a static program in a directory that everybody may read. Without
// a compiler there is none, and the tests skip.
func compile() (dir string, err error) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return "", nil //nolint:nilerr // attacker says so in each test
	}
	if dir, err = os.MkdirTemp("", "skep-attacker-"); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return dir, err
	}
	sources, err := filepath.Glob("attacker/*.c")
	if err != nil || len(sources) == 0 {
		return dir, fmt.Errorf("find its sources: %v, %w", sources, err)
	}
	path := filepath.Join(dir, "attacker")
	args := append([]string{"-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o", path}, sources...)
	if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w\n%s", err, out)
	}
	return dir, os.Setenv(program, path)
}

func attacker(t *testing.T) string {
	t.Helper()
	path := os.Getenv(program)
	if path == "" {
		t.Skip("the attacker is C, and there is no gcc")
	}
	return path
}

type verdict string

const (
	held    verdict = "HELD"
	escaped verdict = "ESCAPED"
	absent  verdict = "ABSENT"
)

// attempt is one line of the attacker.
type attempt struct {
	name    string
	verdict verdict
	why     string
}

// attack is one technique, with all that makes it fair.
type attack struct {
	technique string
	outside   []string // arguments where it must succeed
	inside    []string // arguments in the cell
	// own lets it try outside with the powers of root in namespaces of its own,
	// which every user can have: nothing else is touched there.
	own bool
	// root names the attempts that only the host's root can make outside.
	root []string
	// prepare changes the command outside, worker that of the cell's worker.
	prepare, worker func(*exec.Cmd)
}

// notBuilt is what a kernel says that has no such call (ENOSYS).
const notBuilt = "Function not implemented"

// run makes the attack outside and in the cell, and judges each attempt.
func (a attack) run(t *testing.T, c *celltest.Cell) {
	t.Helper()
	without := a.tryOutside(t)
	within := a.tryInside(t, c)
	for _, o := range without {
		i := slices.IndexFunc(within, func(x attempt) bool { return x.name == o.name })
		switch {
		case o.verdict == absent, o.verdict == held && o.why == notBuilt:
			t.Logf("%s, %s: cannot be tried on this host: %s", a.technique, o.name, o.why)
		case o.verdict != escaped && os.Getuid() != 0 && slices.Contains(a.root, o.name):
			t.Logf("%s, %s: only root can show it outside: %s", a.technique, o.name, o.why)
		case o.verdict != escaped:
			t.Errorf("%s, %s does not succeed outside, so it proves nothing: %s", a.technique, o.name, o.why)
		}
		if i < 0 {
			t.Errorf("%s, %s was not tried in the cell", a.technique, o.name)
		}
	}
	for _, i := range within {
		if i.verdict == escaped {
			t.Errorf("%s, %s got through the cell: %s", a.technique, i.name, i.why)
		}
	}
	if !t.Failed() {
		t.Logf("%s: %d attempts held", a.technique, len(within))
	}
}

func (a attack) tryOutside(t *testing.T) []attempt {
	t.Helper()
	cmd := exec.Command(attacker(t), append([]string{a.technique}, a.outside...)...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &out, &complaint, &syscall.SysProcAttr{Setsid: true}
	if a.own {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS | 0x02000000 // and the cgroup namespace
		if uid := os.Getuid(); uid != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
	}
	if a.prepare != nil {
		a.prepare(cmd)
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s outside: %v\n%s%s", a.technique, err, out.String(), complaint.String())
	}
	return parse(t, a.technique+" outside", out.String())
}

func (a attack) tryInside(t *testing.T, c *celltest.Cell) []attempt {
	t.Helper()
	c.Spec.Argv = append([]string{bring(t, c), a.technique}, a.inside...)
	var prepare []func(*exec.Cmd)
	if a.worker != nil {
		prepare = append(prepare, a.worker)
	}
	out, result := c.RunOn(celltest.Driver(t, prepare...))
	if result.ExitCode != 0 || result.Failed != nil {
		t.Fatalf("%s in the cell: %+v\n%s", a.technique, result, out)
	}
	return parse(t, a.technique+" in the cell", out)
}

// bring grants the cell a copy of the attacker.
func bring(t *testing.T, c *celltest.Cell) string {
	t.Helper()
	brought := filepath.Join(c.Make("brought"), "attacker")
	content, err := os.ReadFile(attacker(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(brought, content, 0o755); err != nil {
		t.Fatal(err)
	}
	c.ReadOnly(filepath.Dir(brought))
	return brought
}

var line = regexp.MustCompile(`^(HELD|ESCAPED|ABSENT) (.+?): (.*)$`)

func parse(t *testing.T, where, out string) []attempt {
	t.Helper()
	var all []attempt
	done := false
	for _, l := range strings.Split(strings.ReplaceAll(out, "\r", ""), "\n") {
		if m := line.FindStringSubmatch(l); m != nil {
			all = append(all, attempt{m[2], verdict(m[1]), m[3]})
		}
		done = done || l == "DONE"
	}
	if !done || len(all) == 0 {
		t.Fatalf("%s: the attacker did not come to its end:\n%s", where, out)
	}
	if testing.Verbose() {
		t.Logf("%s:\n%s", where, out)
	}
	return all
}

// write makes a file of the host for a test.
func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVerdictsAreRead(t *testing.T) {
	got := parse(t, "a test", "noise\nHELD open /x: it: failed\r\nESCAPED port 5: got a byte\nDONE\n")
	want := []attempt{{"open /x", held, "it: failed"}, {"port 5", escaped, "got a byte"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
