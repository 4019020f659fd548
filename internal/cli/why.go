package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/words"
	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/profile"
)

func (a *App) whyCommand() *cobra.Command {
	host := ""
	c := &cobra.Command{
		Use:     "why CELL [EVENT | HOST] | why [CELL] --host NAME[:PORT]",
		Short:   "Say why something was refused or allowed, or would be, and what would allow it; why a cell ended",
		Example: "skep why last\nskep why last 17\nskep why last exfil.example\nskep why fixer --host api.example.org:8443",
		Args: func(c *cobra.Command, args []string) error {
			if host != "" {
				return between(0, 1)(c, args)
			}
			return between(1, 2)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			q := &skepv1.ExplainRequest{Cell: "last", Would: host}
			if len(args) > 0 {
				q.Cell = args[0]
			}
			if len(args) > 1 && digits(args[1]) {
				q.Event = args[1]
			} else if len(args) > 1 {
				q.Host = args[1]
			}
			return a.why(c.Context(), q)
		},
	}
	c.Flags().StringVar(&host, "host", "", "what the cell's rules say of this name or address, tried or not (port 443 if none is given)")
	return c
}

// why asks for an entry, the last crossing to a host, or a destination; without any of
// them for the end of the cell.
func (a *App) why(ctx context.Context, q *skepv1.ExplainRequest) error {
	d, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	if q.Event == "" && q.Host == "" && q.Would == "" {
		return a.whyEnded(ctx, d, q.Cell)
	}
	r, err := d.Explain(ctx, connect.NewRequest(q))
	if err != nil {
		return err
	}
	m := r.Msg
	if a.json {
		out := map[string]any{"what": m.What, "why": m.Why, "rule": m.Rule, "allow_with": m.AllowWith}
		if q.Would != "" {
			out["decision"] = m.Decision
		} else {
			out["entry"] = json.RawMessage(m.Json)
		}
		return a.printValue(out)
	}
	if m.AllowWith, err = a.whereto(ctx, d, q.Cell, m.AllowWith); err != nil {
		return err
	}
	for _, l := range []struct{ head, text string }{
		{"what", m.What}, {"why", m.Why}, {"rule", m.Rule}, {"to allow it", m.AllowWith},
	} {
		if l.text != "" {
			fmt.Fprintf(a.Out, "%-12s %s\n", l.head, escape.Line(l.text))
		}
	}
	return nil
}

// whereto says of a line under net: in which file it belongs. Shipped profiles are no
// files of the user's: another one extends them.
func (a *App) whereto(ctx context.Context, d *daemon, ref, line string) (string, error) {
	if !strings.HasPrefix(line, "- {") {
		return line, nil
	}
	r, err := d.Get(ctx, connect.NewRequest(&skepv1.GetRequest{Cell: ref}))
	if err != nil {
		return "", err
	}
	file := r.Msg.ProfileName
	if slices.Contains(profile.Names(), file) {
		return fmt.Sprintf("net: [%s] in a profile of your own, for --profile (%s is no file; `skep check --effective %s` prints it to begin with)",
			strings.TrimPrefix(line, "- "), file, file), nil
	}
	return fmt.Sprintf("%s under net: in %s", line, file), nil
}

// whyEnded tells the cause of a cell's end.
func (a *App) whyEnded(ctx context.Context, d *daemon, ref string) error {
	r, err := d.Get(ctx, connect.NewRequest(&skepv1.GetRequest{Cell: ref}))
	if err != nil {
		return err
	}
	c := r.Msg
	if a.json {
		return a.printJSON(c)
	}
	if !ended(c) {
		_, err = fmt.Fprintf(a.Out, "cell %s is %s\n", c.Id, words.State(c.State))
		return err
	}
	_, err = fmt.Fprintf(a.Out, "cell %s %s: %s\n", c.Id, words.State(c.State), words.Ending(c))
	if c.Error != "" && err == nil {
		_, err = fmt.Fprintln(a.Out, escape.Sentence(c.Error))
	}
	if budget, is := strings.CutPrefix(c.Cause, "budget: "); is && err == nil {
		_, err = fmt.Fprintf(a.Out, "its limit was %s, its peak %s; a profile that gives it more has another budget.%s\n",
			words.Amount(budget, c.Limit), words.Amount(budget, c.Peak), budget)
	}
	if c.CrossingsRefused > 0 && err == nil {
		_, err = fmt.Fprintf(a.Out, "%s refused: skep ledger show %s --decision deny lists them with what would allow each\n",
			words.Count(c.CrossingsRefused, "crossing"), c.Id)
	}
	return err
}

func digits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}
