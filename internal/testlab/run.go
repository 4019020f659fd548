package testlab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/sys"
)

// stageVariable tells a re-executed test binary how far it has come.
const stageVariable = "SKEP_TESTLAB_STAGE"

// The stages: the binary that was started; its child that owns the new
// namespaces and sets them up; that one's child, which runs the tests.
const (
	stageSetUp  = "setup"
	stageInside = "inside"
	stageAbsent = "absent" // this host gives no namespaces: New skips
)

// Run runs the package's tests in the lab and returns their exit status, for
// TestMain. Where the host allows no namespaces, the tests run outside and New
// skips them with the reason.
func Run(m *testing.M) int {
	switch os.Getenv(stageVariable) {
	case stageSetUp:
		return setUp()
	case stageInside, stageAbsent:
		return m.Run()
	}
	return enter(os.Args[1:], os.Stdout)
}

// Test runs one test in a lab of its own, where the package's other tests stay
// outside. It must be the first thing that a test does: the binary runs again
// inside, for this test alone, and comes back here with the lab.
func Test(t *testing.T, test func(t *testing.T, lab *Lab)) {
	t.Helper()
	switch os.Getenv(stageVariable) {
	case stageSetUp:
		os.Exit(setUp())
	case stageInside, stageAbsent:
		test(t, New(t))
		return
	}
	var out bytes.Buffer
	left := 5 * time.Minute
	if deadline, bounded := t.Deadline(); bounded {
		left = max(left, time.Until(deadline)-time.Second)
	}
	only := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	code := enter([]string{"-test.run=" + only, "-test.v", "-test.timeout=" + left.String()}, &out)
	lines := strings.Join(slices.DeleteFunc(strings.Split(out.String(), "\n"), func(l string) bool {
		return strings.HasPrefix(l, "=== ") || l == "PASS" || l == "FAIL"
	}), "\n")
	switch {
	case code != 0:
		t.Errorf("in the lab, status %d:\n%s", code, lines)
	case strings.Contains(lines, "--- SKIP: "+t.Name()+" "):
		t.Skip(lines)
	case !strings.Contains(lines, "--- PASS: "+t.Name()+" "):
		t.Errorf("the test did not run in the lab:\n%s", out.String())
	default:
		t.Log(lines)
	}
}

// enter runs this binary again, with arguments, in new namespaces.
func enter(args []string, out io.Writer) int {
	dir, err := os.MkdirTemp("", "skep-lab-")
	if err != nil {
		return failed(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Whoever is not the daemon's user reads resolv.conf too.
	if err := os.Chmod(dir, 0o755); err != nil {
		return failed(err)
	}
	cmd := again(stageSetUp, args, out, labDirVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS,
	}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		a := cmd.SysProcAttr
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		// An overlay looks after a working directory that nobody may enter.
		a.AmbientCaps = []uintptr{sys.CapNetAdmin, sys.CapSysAdmin, sys.CapDACOverride}
	}
	// The child dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		cmd = again(stageAbsent, args, out, labDirVariable+"="+err.Error())
		if err := cmd.Start(); err != nil {
			return failed(err)
		}
	}
	return status(cmd.Wait())
}

// setUp makes the namespaces a lab, then runs the tests without the powers that it took.
func setUp() int {
	dir := os.Getenv(labDirVariable)
	if os.Getuid() != 0 {
		if err := ownRoot(dir); err != nil {
			return failed(err)
		}
	}
	if err := makeSmall(); err != nil {
		return failed(err)
	}
	shared := "" // why the host's /etc is the lab's, too
	if err := ownEtc(dir); err != nil {
		shared = err.Error()
	}
	for file, text := range map[string]string{
		"resolv.conf": "nameserver " + Resolver.String() + "\n",
		"hosts":       "127.0.0.1 localhost\n::1 localhost\n",
	} {
		from := filepath.Join(dir, file)
		if err := os.WriteFile(from, []byte(text), 0o644); err != nil {
			return failed(err)
		}
		if err := sys.BindFile(from, filepath.Join("/etc", file)); err != nil {
			return failed(err)
		}
	}
	if err := everywhereIsHere(); err != nil {
		return failed(err)
	}
	runtime.LockOSThread()
	if err := sys.ClearAmbient(); err != nil {
		return failed(err)
	}
	cmd := again(stageInside, os.Args[1:], os.Stdout, etcVariable+"="+shared)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return failed(err)
	}
	return status(cmd.Wait())
}

const labDirVariable = "SKEP_TESTLAB_DIR"

func again(stage string, args []string, out io.Writer, more ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(append(os.Environ(), stageVariable+"="+stage), more...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, os.Stderr
	return cmd
}

func status(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	}
	return failed(err)
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "testlab:", err)
	return 2
}
