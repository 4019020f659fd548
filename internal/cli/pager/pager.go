// Package pager shows what is long in the user's pager, with the habits of git.
//
// Its laws:
//   - It changes no byte: what a cell chose was escaped before (L18a).
//   - A pager that has seen enough is no error.
package pager

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// Find is the command that shows what is long, or nil: PAGER, else less if there is one;
// nothing or cat is none. LESS=FRX leaves what fits on one screen there, and colours are
// ours. env is the user's environment.
func Find(env []string) *exec.Cmd {
	line, named := lookup(env, "PAGER")
	switch {
	case !named:
		if _, err := exec.LookPath("less"); err != nil {
			return nil
		}
		line = "less"
	case strings.TrimSpace(line) == "" || line == "cat":
		return nil
	}
	c := exec.Command("/bin/sh", "-c", line)
	c.Env = append(c.Env, env...)
	for name, value := range map[string]string{"LESS": "FRX", "LV": "-c"} {
		if _, set := lookup(env, name); !set {
			c.Env = append(c.Env, name+"="+value)
		}
	}
	return c
}

// Through has show write to a pager, and waits for it to end.
func Through(pager *exec.Cmd, show func(io.Writer) error) error {
	// A descriptor of its own: that nobody reads it any more must not end us by SIGPIPE.
	in, err := pager.StdinPipe()
	if err == nil {
		err = pager.Start()
	}
	if err != nil {
		return fmt.Errorf("start the pager (PAGER, or --no-pager): %w", err)
	}
	// Ctrl-C is the pager's: it ends what we write by closing its side. Noted after the
	// start, which would hand the pager an ignored signal.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	err = show(in)
	if errors.Is(err, syscall.EPIPE) {
		err = nil
	}
	_ = in.Close()
	var status *exec.ExitError
	if ended := pager.Wait(); ended != nil && !errors.As(ended, &status) {
		err = errors.Join(err, fmt.Errorf("wait for the pager: %w", ended))
	}
	return err
}

// lookup finds a variable, which may be empty.
func lookup(env []string, name string) (value string, set bool) {
	for _, pair := range env {
		if v, ok := strings.CutPrefix(pair, name+"="); ok {
			value, set = v, true
		}
	}
	return value, set
}
