package bequest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/sys/inplace"
)

// left is what the test's programs leave each other.
type left struct {
	Turn   int `json:"turn"`
	File   FD  `json:"file"`
	Socket FD  `json:"socket"`
	None   FD  `json:"none"`
}

// The test runs itself as the program that is replaced, and each successor is it again.
func TestMain(m *testing.M) {
	if os.Getenv("BEQUEST_TEST") == "" {
		os.Exit(m.Run())
	}
	if err := play(); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

const turns = 5

func play() error {
	var s left
	var file, sock *os.File
	if i := slices.Index(os.Args, Flag); i >= 0 {
		fd, err := strconv.Atoi(os.Args[i+1])
		if err != nil {
			return err
		}
		h, err := Open(fd, 3, &s)
		if err != nil {
			return err
		}
		file, sock = h.Need(s.File, "file"), h.Need(s.Socket, "socket")
		if h.Take(s.None, "none") != nil || h.Err() != nil {
			return fmt.Errorf("nothing is something, or %w", h.Err())
		}
	} else {
		var err error
		if file, err = os.CreateTemp("", "bequest"); err != nil {
			return err
		}
		if sock, err = sys.Inherited(3, "socket"); err != nil {
			return err
		}
		_, _ = file.WriteString("kept")
	}
	if err := inplace.CloseInherited(3); err != nil {
		return err
	}
	if err := sys.SendFDs(sock, fmt.Appendf(nil, "%d %d %v", os.Getpid(), s.Turn, openNow())); err != nil {
		return err
	}
	if s.Turn == turns {
		content, err := io.ReadAll(io.NewSectionReader(file, 0, 100))
		fmt.Printf("%s %v", content, err)
		return nil
	}
	leak, err := os.Open("/") // which nobody leaves to anybody
	if err != nil {
		return err
	}
	defer func() { _ = leak.Close() }()
	e := &Estate{}
	s = left{Turn: s.Turn + 1, File: e.Leave(file), Socket: e.Leave(sock), None: e.Leave(nil)}
	if s.Turn == 2 { // a failure changes nothing
		if err := e.Execute("/nowhere", os.Args, os.Environ(), 3, s); err == nil {
			return fmt.Errorf("it executed nothing")
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	return e.Execute(exe, os.Args, os.Environ(), 3, s)
}

// openNow are the numbers from 3 on of what would be inherited.
func openNow() (fds []string) {
	names, _ := filepath.Glob("/proc/self/fdinfo/*")
	for _, n := range names {
		text, _ := os.ReadFile(n)
		fd, _ := strconv.Atoi(filepath.Base(n))
		for line := range strings.Lines(string(text)) {
			if flags, ok := strings.CutPrefix(line, "flags:"); ok && fd > 2 {
				if bits, err := strconv.ParseUint(strings.TrimSpace(flags), 8, 64); err == nil && bits&0o2000000 == 0 {
					fds = append(fds, filepath.Base(n))
				}
			}
		}
	}
	return fds
}

func TestFilesAreLeftInTheSameProcess(t *testing.T) {
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BEQUEST_TEST=1", "TMPDIR="+t.TempDir())
	cmd.ExtraFiles = []*os.File{theirs}
	out, err := cmd.CombinedOutput()
	_ = theirs.Close()
	if err != nil || !strings.HasPrefix(string(out), "kept") {
		t.Fatalf("the last turn said %q, %v", out, err)
	}
	for turn := range turns + 1 {
		buf := make([]byte, 100)
		n, _, err := sys.RecvFDs(ours, buf, 0)
		if want := fmt.Sprintf("%d %d []", cmd.Process.Pid, turn); err != nil || string(buf[:n]) != want {
			t.Errorf("turn %d said %q, %v; want %q", turn, buf[:n], err, want)
		}
	}
}

// What is not exactly what was left is nothing.
func TestHeirIsStrict(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		sealed bool
	}{
		"another version": {`{"v":4,"state":{}}`, true},
		"unknown field":   {`{"v":3,"state":{"more":1}}`, true},
		"unknown outside": {`{"v":3,"state":{},"more":1}`, true},
		"more":            {`{"v":3,"state":{}} {}`, true},
		"nothing":         {``, true},
		"not sealed":      {`{"v":3,"state":{}}`, false},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if c.sealed {
			f, err = sys.SealedFile("test", []byte(c.text))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(number(t, f), 3, &left{}); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	f, err := sys.SealedFile("test", []byte(`{"v":3,"state":{"turn":7}}`))
	if err != nil {
		t.Fatal(err)
	}
	var s left
	h, err := Open(number(t, f), 3, &s)
	if err != nil || s.Turn != 7 {
		t.Fatal(s, err)
	}
	other, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	fd := FD(number(t, other))
	for name, take := range map[string][]FD{"twice": {fd, fd}, "standard": {1}, "not open": {9999}} {
		h := &Heir{taken: map[FD]bool{}}
		for _, fd := range take {
			h.Take(fd, "it")
		}
		if h.Err() == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	if h.Need(0, "it") != nil || h.Err() == nil {
		t.Error("what was not left was there")
	}
}

// number is a duplicate's, which the heir may own.
func number(t *testing.T, f *os.File) int {
	t.Helper()
	n, err := inplace.Number(f)
	if err != nil {
		t.Fatal(err)
	}
	if n, err = syscall.Dup(n); err != nil {
		t.Fatal(err)
	}
	return n
}

func FuzzDescription(f *testing.F) {
	raw, _ := json.Marshal(left{Turn: 1, File: 3})
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s left
		if strictly(raw, &s) == nil {
			if again, err := json.Marshal(s); err != nil || strictly(again, &s) != nil {
				t.Errorf("%q is read, and %q is not (%v)", raw, again, err)
			}
		}
	})
}
