package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"connectrpc.com/connect"

	"skep.dev/skep/internal/cli/words"
	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/strict"
)

// The exit statuses of commands other than run (L19a).
const (
	statusDone    = 0
	statusRefused = 1
	statusUsage   = 2
	statusNoCell  = 3
	statusFailed  = 125 // of run: Skep failed
)

// statusError ends the program with a status. Without an error it is silent.
type statusError struct {
	code int
	err  error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("status %d", e.code)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &statusError{statusUsage, fmt.Errorf(format, args...)}
}

// fixable is an error with what to do about it.
type fixable struct {
	what, fix string
	err       error // what it was told by; may be nil
}

func (e *fixable) Error() string { return e.what + "; " + e.fix }

func (e *fixable) Unwrap() error { return e.err }

// said is an error as a program reads it, with --json.
type said struct {
	Code    string        `json:"code"` // usage, faults, failed, or the code of the API: not_found, failed_precondition ...
	Message string        `json:"message"`
	Fix     string        `json:"fix,omitempty"`
	Exit    int           `json:"exit"`
	Faults  strict.Faults `json:"faults,omitempty"`
}

// told tells an error in the one place that does, and gives the exit status.
func (a *App) told(err error, args []string) int {
	if err == nil {
		return statusDone
	}
	s := said{Code: "failed", Exit: statusOf(err)}
	var status *statusError
	if errors.As(err, &status) {
		s.Exit, err = status.code, status.err
	}
	if err == nil {
		return s.Exit
	}
	err = plain(err)
	var fix *fixable
	switch {
	case errors.As(err, &s.Faults):
		s.Code = "faults"
	case errors.As(err, &fix):
		s.Message, s.Fix = fix.what, fix.fix
	}
	var of *connect.Error
	switch {
	case s.Exit == statusUsage:
		s.Code = "usage"
	case errors.As(err, &of) && s.Fix == "":
		s.Code = of.Code().String()
	}
	// A fault in the flags is told before --json is read.
	if a.json || s.Exit == statusUsage && slices.Contains(args, "--json") {
		if s.Message == "" {
			s.Message = text(err)
		}
		line, err := json.Marshal(map[string]said{"error": s})
		if err == nil {
			fmt.Fprintf(a.Err, "%s\n", line)
		}
		return s.Exit
	}
	if s.Faults != nil {
		a.printFaults(s.Faults)
	} else {
		fmt.Fprintln(a.Err, "skep:", text(err))
	}
	return s.Exit
}

// say tells something on the way, which is no result and no error.
func (a *App) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if !a.json {
		fmt.Fprintln(a.Err, "skep:", line)
		return
	}
	if raw, err := json.Marshal(map[string]string{"notice": line}); err == nil {
		fmt.Fprintf(a.Err, "%s\n", raw)
	}
}

// printFaults shows what is wrong with a file as a compiler does: each with its place,
// its line, and a caret under the text.
func (a *App) printFaults(faults strict.Faults) {
	fmt.Fprintf(a.Err, "%sskep: %s; nothing was run\n", escape.Text(faults.Render()), words.Count(int64(len(faults)), "fault"))
}

// statusOf finds the status for an error of the daemon, which reads some of the command
// line: what it cannot read is as wrong as an unknown flag.
func statusOf(err error) int {
	switch code := connect.CodeOf(err); {
	case code == connect.CodeNotFound:
		return statusNoCell
	case code == connect.CodeInvalidArgument && connect.IsWireError(err): // else an answer that broke off
		return statusUsage
	}
	return statusRefused
}

// text is an error without the words that only a program needs.
func text(err error) string {
	var c *connect.Error
	if errors.As(err, &c) && !errors.As(err, new(*fixable)) {
		return c.Message()
	}
	return err.Error()
}

// plain says what the words of a protocol mean: the other side has gone.
func plain(err error) error {
	if !broken(err) || errors.As(err, new(*fixable)) {
		return err
	}
	return &fixable{"skepd ended before it had answered", "run the command again: it starts another (`skep ps --all` shows what became of cells)", err}
}

// broken tells an answer that broke off from one that skepd gave.
func broken(err error) bool {
	var c *connect.Error
	if !errors.As(err, &c) || connect.IsWireError(err) {
		return false
	}
	// net/http tells a reset as a cancellation, which is not ours: we cancel nothing.
	return c.Code() == connect.CodeCanceled || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
