package cli

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/refused"
	"skep.dev/skep/internal/ledger/entry"
)

// footerRefusals is how many refusals the end of a run tells.
const footerRefusals = 5

func (a *App) boxCommand() *cobra.Command {
	c := &cobra.Command{Use: "box", Short: "Look at the boundary of a cell", Args: noSuchCommand, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	profile := false
	denials := &cobra.Command{
		Use: "denials [CELL]", Short: "Tell what a cell was refused, with the rule that would allow each", Args: between(0, 1),
		Example: "skep box denials last\nskep box denials fixer --as-profile",
		RunE: func(c *cobra.Command, args []string) error {
			return a.denials(c.Context(), append(args, "last")[0], profile)
		},
	}
	denials.Flags().BoolVar(&profile, "as-profile", false, "print the narrowest net rules that would allow it, for a profile")
	c.AddCommand(denials)
	return c
}

func (a *App) denials(ctx context.Context, cell string, profile bool) error {
	d, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	l, err := a.refused(ctx, d, cell)
	if err != nil {
		return err
	}
	if profile {
		rules := l.Rules()
		if len(rules) == 0 {
			_, err := fmt.Fprintln(a.Out, "net: []")
			return err
		}
		fmt.Fprintln(a.Out, "net:")
		for _, r := range rules {
			fmt.Fprintln(a.Out, "  "+r)
		}
		return nil
	}
	if a.json {
		for _, r := range l.All() {
			if err := a.printValue(r); err != nil {
				return err
			}
		}
		return nil
	}
	lines, _ := l.Lines(0)
	for _, line := range lines {
		fmt.Fprintln(a.Out, line)
	}
	return nil
}

// refused reads what a cell was refused from its record.
func (a *App) refused(ctx context.Context, d *daemon, cell string) (*refused.List, error) {
	q := &skepv1.LedgerReadRequest{Cell: cell, Decision: "deny"}
	var l refused.List
	once := func() error {
		stream, err := d.LedgerRead(ctx, connect.NewRequest(q))
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		for stream.Receive() {
			q.From = stream.Msg().Position + 1
			e, err := entry.Parse(stream.Msg().Json)
			if err != nil {
				return err
			}
			l.Add(&e)
		}
		return stream.Err()
	}
	err := once()
	for d.goesOn(ctx, err) {
		err = once()
	}
	return &l, err
}

// tellRefused says of a command that failed after refusals which these were: one of them
// may be why (B89). What cannot be read now is in the record.
func (s *session) tellRefused(ctx context.Context, c *skepv1.Cell) {
	if c.ExitCode == 0 || c.CrossingsRefused == 0 || s.app.quiet || s.app.json {
		return
	}
	l, err := s.app.refused(ctx, s.daemon, c.Id)
	if err != nil {
		return
	}
	lines, more := l.Lines(footerRefusals)
	for _, line := range lines {
		fmt.Fprintln(s.app.Err, line)
	}
	if more > 0 {
		fmt.Fprintf(s.app.Err, "and %d more: skep box denials %s\n", more, c.Id)
	}
	if rules := l.Rules(); len(rules) > 0 {
		fmt.Fprintf(s.app.Err, "skep box denials %s --as-profile prints the rules for the profile\n", c.Id)
	}
}
