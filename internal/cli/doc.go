// Package cli is `skep`: the commands that a person types (L19a).
//
// Its laws:
//   - Only skep opens the user's paths, with the user's own rights, and passes the
//     descriptors; it holds no key and no capability.
//   - `skep run` puts nothing but the agent's bytes on stdout; what Skep says goes
//     to stderr.
//   - Every byte that came from a cell is escaped before a terminal shows it, but
//     for an attached terminal of the cell's own (L18a).
//   - An error says what to do next.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

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

// App is one invocation.
type App struct {
	In     *os.File
	Out    *os.File
	Err    io.Writer
	Getenv func(string) string
	Env    []string

	state, run string // --state, --run
	json       bool
	quiet      bool
}

// Main runs one command line and gives its exit status.
func Main(args []string) int {
	a := &App{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Env: os.Environ()}
	return a.Run(context.Background(), args)
}

// Run executes a command line, without the program's name.
func (a *App) Run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return statusDone
	}
	code := statusOf(err)
	var status *statusError
	if errors.As(err, &status) {
		code, err = status.code, status.err
	}
	var faults strict.Faults
	switch {
	case errors.As(err, &faults):
		a.printFaults(faults)
	case err != nil:
		fmt.Fprintln(a.Err, "skep:", text(err))
	}
	return code
}

// printFaults shows what is wrong with a file as a compiler does: each with its place,
// its line, and a caret under the text.
func (a *App) printFaults(faults strict.Faults) {
	fmt.Fprintf(a.Err, "%sskep: %s; nothing was run\n", escape.Text(faults.Render()), words.Count(int64(len(faults)), "fault"))
}

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

// statusOf finds the status for an error of the daemon.
func statusOf(err error) int {
	if connect.CodeOf(err) == connect.CodeNotFound {
		return statusNoCell
	}
	return statusRefused
}

// text is an error without the words that only a program needs.
func text(err error) string {
	var c *connect.Error
	if errors.As(err, &c) {
		return c.Message()
	}
	return err.Error()
}

func (a *App) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "skep",
		Short:         "Run an agent in a cell, read what it changed, and say yes or no",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%w (%s --help lists the flags)", err, c.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&a.state, "state", "", "Skep's state directory (default: SKEP_STATE, or by XDG)")
	f.StringVar(&a.run, "run", "", "Skep's run-time directory (default: SKEP_RUN, or by XDG)")
	f.BoolVar(&a.json, "json", false, "print JSON: one object, or one a line for lists")
	root.AddCommand(
		a.runCommand(), a.psCommand(), a.logsCommand(), a.attachCommand(), a.stopCommand(),
		a.diffCommand(), a.mergeCommand(), a.dropCommand(), a.ledgerCommand(), a.whyCommand(),
		a.checkCommand(), a.doctorCommand(), a.upCommand(), a.modelCommand(), a.versionCommand(),
	)
	return root
}

// exactly demands a number of arguments, with the command's own form as the fix.
func exactly(n int) cobra.PositionalArgs { return between(n, n) }

func between(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usage("usage: skep %s", c.Use)
		}
		return nil
	}
}

// noSuchCommand is for a command that only holds others.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("unknown command %q: %s --help lists the commands", args[0], c.CommandPath())
	}
	return nil
}
