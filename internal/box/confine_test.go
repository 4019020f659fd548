package box

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

const confinedEnv = "SKEP_BOX_TEST_CONFINED"

// forbidden are the things that a box must never do. Each is tried as it is and
// reports its error; outside a box each succeeds, so that no test passes by
// accident.
func forbidden() map[string]func() error {
	attempt := func(fd int, err error) error {
		if err == nil {
			_ = syscall.Close(fd)
		}
		return err
	}
	nowhere := []byte("/nowhere\x00")
	return map[string]func() error{
		"open a file":         func() error { return attempt(syscall.Open("/etc/hostname", syscall.O_RDONLY, 0)) },
		"open /proc/self/mem": func() error { return attempt(syscall.Open("/proc/self/mem", syscall.O_RDONLY, 0)) },
		"create a file": func() error {
			return attempt(syscall.Creat(filepath.Join(os.TempDir(), fmt.Sprint("box", os.Getpid())), 0o600))
		},
		"make a directory": func() error {
			return syscall.Mkdir(filepath.Join(os.TempDir(), fmt.Sprint("boxdir", os.Getpid())), 0o700)
		},
		"read a link":   func() error { _, err := syscall.Readlink("/proc/self/exe", make([]byte, 99)); return err },
		"stat a file":   func() error { var s syscall.Stat_t; return syscall.Stat("/etc", &s) },
		"run a program": func() error { return exec.Command("/bin/true").Run() },
		"execute in place": func() error {
			return reached(call(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(&nowhere[0]))), syscall.ENOENT)
		},
		"make a unix socket":    func() error { return attempt(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)) },
		"make a netlink socket": func() error { return attempt(syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW, 0)) },
		"trace a thread":        trace,
		"make a namespace":      func() error { return call(syscall.SYS_UNSHARE, syscall.CLONE_NEWUTS) },
		"signal the parent":     func() error { return syscall.Kill(os.Getppid(), 0) },
		"make a memory file":    func() error { name := [2]byte{'x'}; return call(sysMemfdCreate, uintptr(unsafe.Pointer(&name[0]))) },
		"set up io_uring":       ring,
		"read another's memory": peek,
		"raise a limit":         func() error { return syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: 100, Max: 100}) },
		"read its environment":  func() error { _, err := os.ReadFile("/proc/self/environ"); return err },
	}
}

const (
	sysMemfdCreate  = 319 // amd64; the numbers of arm64 differ and the test is skipped there
	sysIOUringSetup = 425
	sysProcessVM    = 310
)

// call makes a system call, of which only the error counts.
func call(nr uintptr, a ...uintptr) error {
	a = append(a, 0, 0, 0, 0, 0, 0)
	_, _, errno := syscall.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]) //nolint:forbidigo // the attempt is the test
	if errno != 0 {
		return errno
	}
	return nil
}

// reached takes an error that only the kernel's own work gives for a success.
func reached(err error, want syscall.Errno) error {
	if errors.Is(err, want) {
		return nil
	}
	return err
}

func ring() error {
	var params [120]byte
	return call(sysIOUringSetup, 1, uintptr(unsafe.Pointer(&params[0])))
}

func peek() error {
	var from, to [8]byte
	local := [2]uintptr{uintptr(unsafe.Pointer(&to[0])), 8}
	remote := [2]uintptr{uintptr(unsafe.Pointer(&from[0])), 8}
	return call(sysProcessVM, uintptr(os.Getpid()), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1)
}

// trace asks for a process that does not exist.
func trace() error {
	const seize = 0x4206 // PTRACE_SEIZE
	return reached(call(syscall.SYS_PTRACE, seize, 1<<30), syscall.ESRCH)
}

// needed are the things that a box must still be able to do.
func needed() map[string]func() error {
	return map[string]func() error{
		"dial and relay": func() error {
			l, err := net.FileListener(os.NewFile(3, "listener"))
			if err != nil {
				return err
			}
			go func() {
				if c, err := l.Accept(); err == nil {
					_, _ = c.Write([]byte("x"))
					_ = c.Close()
				}
			}()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return err
			}
			_, err = c.Read(make([]byte, 2))
			return err
		},
		"ask a resolver": func() error {
			c, err := net.Dial("udp", "127.0.0.1:9")
			if err != nil {
				return err
			}
			return c.Close()
		},
		"grow": func() error {
			done := make(chan int)
			for range 50 {
				go func() { done <- len(make([]byte, 1<<20)) }()
			}
			for range 50 {
				<-done
			}
			return nil
		},
	}
}

// TestConfined is the child: it confines itself, or not, and prints one line for
// each attempt.
func TestConfined(t *testing.T) {
	mode := os.Getenv(confinedEnv)
	if mode == "" {
		t.Skip("only as a child of TestConfineForbids")
	}
	if mode == "confined" {
		if err := Confine(); err != nil {
			t.Fatal(err)
		}
	}
	for what, try := range needed() {
		fmt.Printf("needs %s: %v\n", what, try())
	}
	for what, try := range forbidden() {
		fmt.Printf("tries %s: %v\n", what, try())
	}
	syscall.Exit(0)
}

// shipped is this test binary, built as skep-box is: without cgo, whose threads
// Landlock does not reach, and without the race detector.
func shipped(t *testing.T) string {
	t.Helper()
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"}) {
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		return program
	}
	program := filepath.Join(t.TempDir(), "box.test")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// TestConfineForbids runs the same attempts confined and free, in a program built
// as skep-box is: without cgo, whose threads would escape Landlock.
func TestConfineForbids(t *testing.T) {
	if os.Getenv(confinedEnv) != "" {
		t.Skip("this is the child")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("knows the system call numbers of amd64 only")
	}
	world(t)
	program := shipped(t)
	free, confined := attempts(t, program, "free"), attempts(t, program, "confined")
	for what := range forbidden() {
		key := "tries " + what
		if free[key] != "<nil>" {
			t.Errorf("%s fails outside a box, too: %s", what, free[key])
		}
		if confined[key] == "<nil>" || confined[key] == "" {
			t.Errorf("a box can %s", what)
		}
	}
	for what := range needed() {
		if got := confined["needs "+what]; got != "<nil>" {
			t.Errorf("a box cannot %s: %s", what, got)
		}
	}
}

func attempts(t *testing.T, program, mode string) map[string]string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := exec.CommandContext(t.Context(), program, "-test.run", "^TestConfined$", "-test.timeout", "30s")
	c.Env = append(os.Environ(), confinedEnv+"="+mode)
	c.ExtraFiles = []*os.File{f}
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", mode, err, out, errs.String())
	}
	result := map[string]string{}
	for _, line := range strings.Split(string(out), "\n") {
		if what, got, ok := strings.Cut(line, ": "); ok {
			result[what] = got
		}
	}
	return result
}
