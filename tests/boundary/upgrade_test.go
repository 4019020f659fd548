package boundary

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
)

const streamArgument = "stream"

// stream is an agent that has much under way: a kept connection on which it counts, a
// download, and one new flow after the other. For each line on its standard input it connects anew, to a name of which
// nobody has heard yet. It ends with the input, with status 9.
func stream(at, fresh string) int {
	kept, err := net.Dial("tcp", at)
	if err != nil {
		fmt.Println("failed: the kept connection:", err)
		return 1
	}
	bulk := make(chan string, 1)
	go func() {
		got, err := attempt{At: at, N: 64 << 20}.bulk()
		bulk <- fmt.Sprintf("%s %v", got, err)
	}()
	churn, over := make(chan string, 1), make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			if got, err := (attempt{How: "tcp", At: at}).echo(); err != nil {
				churn <- fmt.Sprintf("%q %v after %d", got, err, n)
				return
			}
			select {
			case <-over:
				churn <- "all well"
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		say := fmt.Sprintf("%08d", n)
		back := make([]byte, len(say))
		if _, err := io.WriteString(kept, say); err != nil {
			fmt.Println("failed: the kept connection, after", n, err)
			return 1
		}
		if _, err := io.ReadFull(kept, back); err != nil || string(back) != say {
			fmt.Printf("failed: the kept connection answered %q, %v after %d\n", back, err, n)
			return 1
		}
		select {
		case line, more := <-lines:
			if !more {
				close(over)
				fmt.Println("bulk", <-bulk)
				fmt.Println("churn", <-churn)
				return 9
			}
			name, port, _ := net.SplitHostPort(fresh)
			got, err := attempt{How: "tcp", At: net.JoinHostPort(line+"."+name, port)}.echo()
			fmt.Println("fresh", line, got, err)
			got, err = attempt{How: "tcp", At: "denied.test:7080"}.echo()
			fmt.Println("denied", line, got, short(err))
		case <-tick.C:
		}
	}
}

// running is a `skep run` that the test speaks to.
type running struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// begin runs the agent of the test, attended.
func (h *host) begin(args ...string) *running {
	return h.beginProgram(append([]string{h.prober}, args...)...)
}

// beginProgram runs a program, attended.
func (h *host) beginProgram(argv ...string) *running {
	h.t.Helper()
	cmd := exec.Command(filepath.Join(filepath.Dir(testlab.Built(h.t, "skep")), "skep"), append([]string{"run", "--yes", "--quiet", "--profile", h.profile, "--"}, argv...)...)
	cmd.Dir, cmd.Env = h.Tree, h.Env
	in, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if h.t.Failed() {
			h.t.Logf("skep run said: %s", said.String())
		}
	})
	return &running{cmd, in, bufio.NewScanner(out)}
}

// line is the next that the agent wrote.
func (r *running) line(t *testing.T) string {
	t.Helper()
	if !r.out.Scan() {
		t.Fatalf("the agent said nothing more: %v", r.out.Err())
	}
	return r.out.Text()
}

// A cell with an agent that streams lives through an upgrade, five times: a kept connection, a
// download, its terminal's far end; new flows and new names work after it, what is denied
// is denied; its status arrives; its record is whole and has everything once (L20, L20a).
func TestUpgradeUnderARunningCell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		for _, name := range []string{"four.test", "a.four.test", "b.four.test", "c.four.test", "d.four.test", "e.four.test", "f.four.test", "denied.test"} {
			lab.Host(name, public4)
		}
		lab.Echo(public4 + ":7080")
		h := open(t, lab, "net: [{name: four.test, ports: [7080]}, {name: \"*.four.test\", ports: [7080]}]\nbudget: {net: 1GiB}\n")
		r := h.begin(streamArgument, "four.test:7080", "four.test:7080")
		ask := func(name string) {
			t.Helper()
			if _, err := fmt.Fprintln(r.in, name); err != nil {
				t.Fatal(err)
			}
			if got := r.line(t); got != "fresh "+name+" hello <nil>" {
				t.Errorf("%s", got)
			}
			if got := r.line(t); got != "denied "+name+"  ECONNREFUSED" {
				t.Errorf("%s", got)
			}
		}
		ask("a")
		for _, name := range []string{"b", "c", "d", "e", "f"} {
			t.Log(strings.TrimSpace(h.Skep("upgrade")))
			ask(name)
		}
		_ = r.in.Close()
		if got := r.line(t); got != "bulk the same <nil>" {
			t.Errorf("%s", got)
		}
		if got := r.line(t); got != "churn all well" {
			t.Errorf("%s", got)
		}
		_ = r.cmd.Wait()
		if code := r.cmd.ProcessState.ExitCode(); code != 9 {
			t.Errorf("the run ended with %d", code)
		}
		if stopped := h.Skep("ps", "--all"); !strings.Contains(stopped, "exit 9") {
			t.Error(stopped)
		}
		all := h.all()
		if notes := slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return e.Kind != "note" }); len(notes) != 15 {
			t.Errorf("%d replacements are recorded, there were 15", len(notes))
		}
		h.pairs(all)
	})
}

// pairs demands that each flow has one intent and one outcome.
func (h *host) pairs(all []entry) {
	h.t.Helper()
	intents, outcomes := map[any]int{}, map[any]int{}
	for _, e := range all {
		switch e.Kind {
		case "flow.intent":
			intents[e.Body["flow"]]++
		case "flow.outcome":
			outcomes[e.Body["flow"]]++
		}
	}
	for flow, n := range intents {
		if n != 1 || outcomes[flow] != 1 {
			h.t.Errorf("flow %v has %d intents and %d outcomes", flow, n, outcomes[flow])
		}
	}
	if len(outcomes) != len(intents) || len(intents) < 6 {
		h.t.Errorf("%d flows have intents, %d outcomes", len(intents), len(outcomes))
	}
}
