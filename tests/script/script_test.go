package script

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/journey"
)

func TestJourneys(t *testing.T) {
	root, err := os.MkdirTemp("", "skep-script")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	// Started by root, skepd is another user, who must find programs and trees.
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	bin, agent := filepath.Join(root, "bin"), filepath.Join(root, "agent")
	if reason := install(filepath.Dir(testlab.Built(t, "skep")), bin); reason != "" {
		t.Skip(reason)
	}
	noAgent := errors.Join(buildAgent(agent, "examples/agent"), buildAgent(agent, "tests/script/devserver"))
	if noAgent != nil {
		t.Logf("without the agent of examples/agent: %v", noAgent)
	}
	testscript.Run(t, testscript.Params{
		Dir:         "testdata",
		WorkdirRoot: root,
		Setup: func(e *testscript.Env) error {
			e.Setenv("AGENT", filepath.Join(agent, "agent"))
			e.Setenv("DEVSERVER", filepath.Join(agent, "devserver"))
			return setup(e, bin)
		},
		Condition: func(what string) (bool, error) {
			switch what {
			case "agent":
				return noAgent == nil, nil
			case "root":
				return os.Getuid() == 0, nil
			}
			return false, fmt.Errorf("no condition %q", what)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "hash": hash, "alone": alone, "signal": signal},
	})
}

// buildAgent builds what runs in a cell and is no program of Skep.
func buildAgent(dir, program string) error {
	build := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/", "skep.dev/skep/"+program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=auto")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	out, err := build.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build it: %w: %s", err, out)
	}
	return nil
}

// install copies the programs to where every user may execute them.
func install(built, bin string) (reason string) {
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err.Error()
	}
	for _, name := range []string{"skep", "skepd", "skep-worker", "skep-warden", "skep-box", "skep-model"} {
		from, err := os.Open(filepath.Join(built, name))
		if errors.Is(err, fs.ErrNotExist) {
			return built + " has no " + name + ": make build"
		}
		if err != nil {
			return err.Error()
		}
		to, err := os.OpenFile(filepath.Join(bin, name), os.O_WRONLY|os.O_CREATE, 0o755)
		if err == nil {
			_, err = io.Copy(to, from)
			err = errors.Join(err, to.Close())
		}
		_ = from.Close()
		if err != nil {
			return err.Error()
		}
	}
	return ""
}

// setup starts the journey's own daemon, and ends it after.
func setup(e *testscript.Env, bin string) error {
	for name, dir := range map[string]string{"SKEP_STATE": "state", "XDG_STATE_HOME": "own", "XDG_CONFIG_HOME": "config", "HOME": "home"} {
		e.Setenv(name, filepath.Join(e.WorkDir, dir))
	}
	if err := os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// A socket's path is short.
	run, err := os.MkdirTemp("", "skep-run")
	if err != nil {
		return err
	}
	if err := os.Chmod(run, 0o755); err != nil {
		return err
	}
	e.Defer(func() { _ = os.RemoveAll(run) })
	e.Setenv("SKEP_RUN", filepath.Join(run, "r"))
	e.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	up := exec.Command(filepath.Join(bin, "skep"), "up")
	up.Env = e.Vars
	up.Dir = e.WorkDir
	log, err := os.Create(filepath.Join(run, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	up.Stdout, up.Stderr = log, log
	if err := up.Start(); err != nil {
		return err
	}
	e.Defer(func() {
		_ = up.Process.Signal(os.Interrupt)
		_ = up.Wait()
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		if f, err := sys.ConnectUnix(filepath.Join(run, "r", "api.sock"), sys.Stream); err == nil {
			return f.Close()
		}
	}
	said, _ := os.ReadFile(log.Name())
	return fmt.Errorf("skep up does not answer: %s", said)
}

// status N PROGRAM [ARGUMENTS] demands an exit status.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N PROGRAM [ARGUMENTS]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("status %d, want %d", got, want)
	}
}

// hash CELL sets $HASH to the hash of its difference.
func hash(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hash CELL")
	}
	ts.Check(ts.Exec("skep", "diff", "--json", args[0]))
	h, err := hashOf(ts.ReadFile("stdout"))
	ts.Check(err)
	ts.Setenv("HASH", h)
}

// alone gives what follows places where no daemon runs yet: the next command starts one.
func alone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: alone")
	}
	dir, err := os.MkdirTemp("", "skep-alone")
	ts.Check(err)
	ts.Check(os.Chmod(dir, 0o755))
	ts.Defer(func() {
		ts.Check(errors.Join(journey.EndDaemon(dir), os.RemoveAll(dir)))
	})
	ts.Setenv("SKEP_STATE", filepath.Join(dir, "state"))
	ts.Setenv("SKEP_RUN", filepath.Join(dir, "run"))
}

// signal NUMBER sends a signal to the daemon of places that alone has given.
func signal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: signal NUMBER")
	}
	number, err := strconv.Atoi(args[0])
	ts.Check(err)
	pid := journey.Daemon(filepath.Dir(ts.Getenv("SKEP_RUN")))
	if pid == 0 {
		ts.Fatalf("no daemon runs")
	}
	ts.Check(syscall.Kill(pid, syscall.Signal(number)))
}
