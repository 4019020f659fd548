package attack

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/testlab"
)

// installation is Skep as a user has it, in directories of the test's own.
type installation struct {
	t                     *testing.T
	dir, state, run, skep string
	project, config       string // the working directory of the runs; what the operator sets
	environment           []string
}

// install makes the directories of an installation in the lab.
func install(t *testing.T, lab *testlab.Lab) *installation {
	t.Helper()
	dir := lab.Dir()
	s := &installation{
		t: t, dir: dir, state: filepath.Join(dir, "state"), run: filepath.Join(dir, "run"),
		config: filepath.Join(dir, "config", "skep"), project: filepath.Join(dir, "project"), skep: celltest.Program(t, "skep"),
	}
	for _, d := range []string{s.project, s.config} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	celltest.Daemon(t)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SKEP_") && !strings.HasPrefix(v, "XDG_") {
			s.environment = append(s.environment, v)
		}
	}
	s.environment = append(s.environment, "SKEP_STATE="+s.state, "SKEP_RUN="+s.run,
		"XDG_CONFIG_HOME="+filepath.Dir(s.config), "XDG_STATE_HOME="+filepath.Join(dir, "own"))
	return s
}

// start runs skepd in the foreground, once the test has written what it reads.
// It ends with the test.
func (s *installation) start() {
	s.t.Helper()
	up := s.command("up")
	var log bytes.Buffer
	up.Stdout, up.Stderr = &log, &log
	up.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := up.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = up.Wait()
		close(ended)
	}()
	s.t.Cleanup(func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = syscall.Kill(-up.Process.Pid, syscall.SIGKILL)
			s.t.Errorf("skep up does not end on SIGTERM; it said:\n%s", log.String())
		}
		if s.t.Failed() {
			s.t.Logf("skep up said:\n%s", log.String())
		}
	})
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for range 4000 {
		if c, err := net.Dial("unix", filepath.Join(s.run, "api.sock")); err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-ended:
			s.t.Fatalf("skep up ended: %v\n%s", up.ProcessState, log.String())
		case <-again.C:
		}
	}
	s.t.Fatalf("skep up does not answer:\n%s", log.String())
}

func (s *installation) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.skep, args...)
	cmd.Env, cmd.Dir = s.environment, s.project
	return cmd
}

// try runs skep and returns what it printed and its status.
func (s *installation) try(args ...string) (stdout, stderr string, status int) {
	s.t.Helper()
	cmd := s.command(args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &complaint, time.Second
	slow := time.AfterFunc(time.Minute, func() {
		s.t.Errorf("skep %s has not ended in a minute", strings.Join(args, " "))
		_ = cmd.Process.Kill()
	})
	defer slow.Stop()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("skep %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

// profile writes a profile that shows the system's programs, the project for writing,
// and what more says.
func (s *installation) profile(more string) string {
	s.t.Helper()
	text := "version: v1\npaths:\n  - {path: " + s.project + ", rights: rw}\n"
	for _, p := range []string{"/usr", "/bin", "/lib", "/lib64"} {
		if _, err := os.Stat(p); err == nil {
			text += "  - {path: " + p + ", rights: ro}\n"
		}
	}
	return write(s.t, filepath.Join(s.dir, "profile.yaml"), text+more, 0o644)
}

// attack makes an attack in a cell that `skep run` builds.
func (s *installation) attack(profile, technique string, args ...string) []attempt {
	s.t.Helper()
	content, err := os.ReadFile(attacker(s.t))
	if err != nil {
		s.t.Fatal(err)
	}
	program := write(s.t, filepath.Join(s.project, "attacker"), string(content), 0o755)
	out, complaint, status := s.try(append([]string{"run", "--yes", "--profile", profile, "--", program, technique}, args...)...)
	if status != 0 {
		s.t.Fatalf("skep run: status %d\n%s%s", status, out, complaint)
	}
	return parse(s.t, technique+" in a cell of skep run", out)
}

// entry is a line of the ledger, as `skep ledger show --json` prints it.
type entry struct {
	Kind string         `json:"kind"`
	Body map[string]any `json:"body"`
}

// ledger is the record of the last cell.
func (s *installation) ledger() []entry {
	s.t.Helper()
	out, complaint, status := s.try("ledger", "show", "last", "--json")
	if status != 0 {
		s.t.Fatalf("skep ledger show: status %d\n%s", status, complaint)
	}
	var all []entry
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var e entry
		if err := d.Decode(&e); err != nil {
			break
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		s.t.Fatalf("the ledger of the last cell is empty: %q", out)
	}
	return all
}
