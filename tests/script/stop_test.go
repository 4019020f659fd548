package script

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/tests/journey"
)

// screen is what a terminal has shown.
type screen struct {
	mu    sync.Mutex
	shown bytes.Buffer
	news  chan struct{}
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
	return s.shown.Write(b)
}

// until waits for a text after what the last wait has found.
func (s *screen) until(t *testing.T, text string) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		s.mu.Lock()
		all := s.shown.String()
		if at := strings.Index(all, text); at >= 0 {
			s.shown.Next(at + len(text))
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		select {
		case <-s.news:
		case <-late:
			t.Fatalf("no %q in what the terminal shows: %q", text, all)
		}
	}
}

// TestStopAndGoOn: Ctrl-Z stops `skep run` with its agent, gives the terminal back
// to the shell, and fg continues both (L18).
func TestStopAndGoOn(t *testing.T) {
	for _, program := range []string{"script", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	p := journey.New(t)
	shell := exec.Command("script", "--quiet", "--return", "--command", "bash --norc --noprofile -i", "/dev/null")
	shell.Dir, shell.Env = p.Tree, append(p.Env, "PS1=prompt> ", "TERM=xterm", "HISTFILE=")
	keys, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{news: make(chan struct{}, 1)}
	shell.Stdout, shell.Stderr = s, s
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = keys.Close()
		_ = shell.Process.Kill()
		_ = shell.Wait()
	})
	press := func(text string) {
		t.Helper()
		if _, err := io.WriteString(keys, text); err != nil {
			t.Fatal(err)
		}
	}
	s.until(t, "prompt> ")
	press("skep run --yes -- /bin/sh -c 'echo agent-$((40+2)); read key; echo got-$key; exit 7'\n")
	s.until(t, "agent-42")
	press("\x1a")
	s.until(t, "Stopped")
	s.until(t, "prompt> ")
	press("echo in-the-shell-$((1+1))\n")
	s.until(t, "in-the-shell-2")
	s.until(t, "prompt> ")
	press("fg\n")
	s.until(t, "skep run")
	press("word\n")
	s.until(t, "got-word")
	s.until(t, "prompt> ")
	press("echo ended-with-$?\n")
	s.until(t, "ended-with-7")
}
