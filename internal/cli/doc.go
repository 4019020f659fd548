// Package cli is `skep`: the commands that a person types (L19a).
//
// Its laws:
//   - Only skep opens the user's paths, with the user's own rights, and passes the
//     descriptors; it holds no key and no capability.
//   - `skep run` puts nothing but the agent's bytes on stdout; what Skep says goes
//     to stderr.
//   - Every byte that came from a cell is escaped before a terminal shows it, but
//     for an attached terminal of the cell's own (L18a).
//   - An error says what to do next. With --json it is one object on stderr.
//
// Size: each command is a file of its own, and they are many; what stands by itself (the
// pager, the terminal, the manual, what is opened, pending merges) is a package below.
package cli

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skep.dev/skep/internal/cli/manual"
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
	noPager    bool
	patience   time.Duration // with a skepd that does not answer; 0: answerTime
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
	return a.told(root.ExecuteContext(ctx), args)
}

func (a *App) root() *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:           "skep",
		Short:         "Run an agent in a cell, read what it changed, and say yes or no",
		Example:       "skep run -- ./agent make the tests pass\nskep diff last\nskep merge last HASH",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error {
			if version {
				return a.version()
			}
			return c.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print this program's version")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%w (%s --help lists the flags)", err, c.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&a.state, "state", "", "Skep's state directory (default: SKEP_STATE, or by XDG)")
	f.StringVar(&a.run, "run", "", "Skep's run-time directory (default: SKEP_RUN, or by XDG)")
	f.BoolVar(&a.json, "json", false, "print JSON: one object, or one a line for lists; errors too, on stderr")
	f.BoolVar(&a.noPager, "no-pager", false, "show diff, logs and ledger without a pager on a terminal")
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"run", "Run and watch:", []*cobra.Command{a.runCommand(), a.psCommand(), a.logsCommand(), a.attachCommand(), a.refreshCommand(), a.forwardCommand(), a.stopCommand()}},
		{"read", "Read and decide:", []*cobra.Command{a.diffCommand(), a.mergeCommand(), a.dropCommand(), a.approveCommand(), a.whyCommand(), a.boxCommand(), a.ledgerCommand()}},
		{"host", "Profiles and this host:", []*cobra.Command{a.checkCommand(), a.doctorCommand(), a.upCommand(), a.upgradeCommand(), a.modelCommand(), a.versionCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("host")
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c.Example != "" {
			c.Example = "  " + strings.ReplaceAll(c.Example, "\n", "\n  ")
		}
		help(c, args)
		manual.Print(c.OutOrStdout(), c)
	})
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
