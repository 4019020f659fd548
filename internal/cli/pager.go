package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"skep.dev/skep/internal/cli/terminal"
)

// paged has show write to the user's pager where a terminal would get it, with the habits
// of git: PAGER, else less; nothing or cat for none; LESS=FRX, so that what fits on one
// screen stays there, and colours are ours. What a cell chose is escaped before it is
// written (L18a), pager or not. A pipe and --json get no pager.
func (a *App) paged(show func(io.Writer) error) error {
	pager := a.pager()
	if pager == nil {
		return show(a.Out)
	}
	// An own descriptor: a reader who has seen enough must not end us by SIGPIPE.
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

// pager is the command that shows what is long, or nil.
func (a *App) pager() *exec.Cmd {
	if a.noPager || a.json || !terminal.IsTerminal(a.Out) {
		return nil
	}
	line, named := a.lookup("PAGER")
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
	c.Stdout, c.Stderr, c.Env = a.Out, a.Err, a.Env
	for name, value := range map[string]string{"LESS": "FRX", "LV": "-c"} {
		if _, set := a.lookup(name); !set {
			c.Env = append(c.Env, name+"="+value)
		}
	}
	return c
}

// lookup finds a variable of ours, which may be empty.
func (a *App) lookup(name string) (value string, set bool) {
	for _, pair := range a.Env {
		if v, ok := strings.CutPrefix(pair, name+"="); ok {
			value, set = v, true
		}
	}
	return value, set
}
