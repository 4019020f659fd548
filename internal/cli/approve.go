package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/words"
	"skep.dev/skep/internal/escape"
)

// decision is what the flags of `skep approve` say.
type decision struct{ once, cell, always, deny, standing, all bool }

func (a *App) approveCommand() *cobra.Command {
	var d decision
	var revoke string
	c := &cobra.Command{
		Use: "approve [CARD [HASH]]", Short: "List what agents ask, show a card, and answer the one whose hash was read",
		Example: "skep approve\nskep approve r5r6ihza\nskep approve r5r6ihza 09d4509eabaf --cell\nskep approve r5r6ihza 09d4509eabaf --deny\nskep approve --standing",
		Args: func(c *cobra.Command, args []string) error {
			list := d.standing || d.all || revoke != ""
			switch {
			case list && len(args) > 0, len(args) < 2 && (d.once || d.cell || d.always || d.deny):
				return usage("an answer needs card and hash: skep approve CARD shows both")
			}
			return between(0, 2)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case revoke != "":
				return a.revokeApproval(c.Context(), revoke)
			case len(args) == 2:
				return a.decide(c.Context(), args[0], args[1], d)
			case len(args) == 1:
				return a.showCard(c.Context(), args[0])
			}
			return a.listCards(c.Context(), d)
		},
	}
	f := c.Flags()
	f.BoolVar(&d.once, "once", false, "for the next flow within ten minutes (the default)")
	f.BoolVar(&d.cell, "cell", false, "until the cell ends")
	f.BoolVar(&d.always, "always", false, "for this profile, whenever you run it")
	f.BoolVar(&d.deny, "deny", false, "no: nobody is asked again for ten minutes")
	f.BoolVar(&d.all, "all", false, "also what is answered, of cells that live")
	f.BoolVar(&d.standing, "standing", false, "list what holds always")
	f.StringVar(&revoke, "revoke", "", "take back what holds always, by the id of its card; its flows end")
	c.MarkFlagsMutuallyExclusive("once", "cell", "always", "deny", "all", "standing", "revoke")
	return c
}

func (a *App) listCards(ctx context.Context, d decision) error {
	s, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	r, err := s.ListApprovals(ctx, connect.NewRequest(&skepv1.ListApprovalsRequest{All: d.all}))
	if err != nil {
		return err
	}
	if d.standing {
		return a.listStanding(r.Msg.Standing)
	}
	if a.json {
		for _, c := range r.Msg.Cards {
			if err := a.printJSON(c); err != nil {
				return err
			}
		}
		return nil
	}
	return a.table("CARD\tCELL\tASKED\tSTATE\tTIMES\tTO", func(w io.Writer) {
		for _, c := range r.Msg.Cards {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", c.Id, c.Cell, words.Clock(c.Opened), cardState(c), c.Count, escape.Line(c.Title))
		}
	})
}

func (a *App) listStanding(standing []*skepv1.StandingApproval) error {
	if a.json {
		for _, s := range standing {
			if err := a.printJSON(s); err != nil {
				return err
			}
		}
		return nil
	}
	return a.table("CARD\tSINCE\tTO\tPROFILE", func(w io.Writer) {
		for _, s := range standing {
			fmt.Fprintf(w, "%s\t%s\t%s:%d/%s\t%s\n", s.Id, words.Clock(s.Since), escape.Line(s.Host), s.Port, escape.Line(s.Transport), escape.Line(s.Profile))
		}
	})
}

// table prints rows below a head, as wide as the terminal.
func (a *App) table(head string, rows func(io.Writer)) error {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, head)
	rows(w)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(a.Out, narrow(text.String(), a.columns()))
	return err
}

// cardState is a card's state with how far a yes reaches.
func cardState(c *skepv1.Card) string {
	if c.State != "approved" {
		return c.State
	}
	if c.Used {
		return "approved once, used"
	}
	return "approved, " + map[string]string{"once": "once", "cell": "for the cell", "rule": "always"}[c.Scope]
}

// showCard prints a card, and below it the hash that binds it.
func (a *App) showCard(ctx context.Context, id string) error {
	s, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	r, err := s.ListApprovals(ctx, connect.NewRequest(&skepv1.ListApprovalsRequest{All: true}))
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(r.Msg.Cards, func(c *skepv1.Card) bool { return !strings.HasPrefix(c.Id, id) || len(id) < 4 })
	if len(found) != 1 {
		return errors.New("no such card: `skep approve` lists those that wait, and four letters that only one has are enough")
	}
	c := found[0]
	if a.json {
		return a.printJSON(c)
	}
	fmt.Fprintf(a.Out, "cell %s asks to %s\n", c.Cell, escape.Line(c.Title))
	for _, f := range c.Findings {
		fmt.Fprintf(a.Out, "  note: it is %s\n", escape.Line(f))
	}
	if c.Quote != "" {
		fmt.Fprintf(a.Out, "  the agent says: %q\n", c.Quote)
	}
	fmt.Fprintf(a.Out, "%s, asked %s, until %s: %s\n\nhash %s\n", words.Count(int64(c.Count), "attempt"), words.Clock(c.Opened), words.Clock(c.Expires), cardState(c), c.Hash)
	if c.State == "pending" {
		fmt.Fprintf(a.Out, "\n  skep approve %s %s              once\n  skep approve %s %s --cell | --always | --deny\n", c.Id[:8], c.Hash[:12], c.Id[:8], c.Hash[:12])
	}
	return nil
}

func (a *App) decide(ctx context.Context, id, hash string, d decision) error {
	s, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	scope := "once"
	switch {
	case d.cell:
		scope = "cell"
	case d.always:
		scope = "rule"
	}
	r, err := s.DecideApproval(ctx, connect.NewRequest(&skepv1.DecideApprovalRequest{Id: id, Hash: hash, Allow: !d.deny, Scope: scope}))
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(r.Msg)
	}
	_, err = fmt.Fprintf(a.Out, "%s: %s (cell %s)\n", cardState(r.Msg), escape.Line(r.Msg.Title), r.Msg.Cell)
	return err
}

func (a *App) revokeApproval(ctx context.Context, id string) error {
	s, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	r, err := s.RevokeApproval(ctx, connect.NewRequest(&skepv1.RevokeApprovalRequest{Id: id}))
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(r.Msg.Revoked)
	}
	_, err = fmt.Fprintf(a.Out, "revoked: %s:%d by %s, for %s\n", escape.Line(r.Msg.Revoked.Host), r.Msg.Revoked.Port, escape.Line(r.Msg.Revoked.Transport), escape.Line(r.Msg.Revoked.Profile))
	return err
}
