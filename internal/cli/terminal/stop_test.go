package terminal

import (
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/sys"
)

// TestStoppedAgentStopsNothingElse is the attack: an agent with pipes that stops
// itself. The program that carries its output has a group of its own here; a signal
// to the group, which is its caller's, would be seen.
func TestStoppedAgentStopsNothingElse(t *testing.T) {
	const within = "SKEP_TEST_STOPPED_AGENT"
	if os.Getenv(within) == "" {
		self := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		self.Env = append(os.Environ(), within+"=1")
		self.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if out, err := self.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTSTP)
	ours, warden, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	in, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = Session(context.Background(), ours, Console{In: in, Out: io.Discard, Err: io.Discard}) }()
	if _, err := warden.WriteString("\x06\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	_ = warden.SetReadDeadline(time.Now().Add(10 * time.Second))
	answer := make([]byte, 5)
	if _, err := io.ReadFull(warden, answer); err != nil || answer[0] != frameStopped {
		t.Errorf("the agent is not continued: %q, %v", answer, err)
	}
	select {
	case <-stopped:
		t.Error("the group was stopped")
	default:
	}
}

// TestEndedCellStopsNobody: the word of a stop that comes with the end is too late.
func TestEndedCellStopsNobody(t *testing.T) {
	ours, warden, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	_ = warden.Close()
	if gone, err := sys.HungUp(ours); err != nil || !gone {
		t.Errorf("%v, %v", gone, err)
	}
	s := suspension{conn: ours, send: &frames{w: ours}}
	if s.seen() {
		t.Error("it would stop")
	}
	if err := s.take(); err != nil {
		t.Errorf("the end is not told: %v", err)
	}
}
