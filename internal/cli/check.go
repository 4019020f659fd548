package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/right"
)

func (a *App) checkCommand() *cobra.Command {
	var effective bool
	c := &cobra.Command{
		Use: "check [FILE]", Short: "Validate a profile, and say what it gives", Args: between(0, 1),
		Example: "skep check build.yaml\nskep check --effective coding-agent",
		RunE: func(c *cobra.Command, args []string) error {
			file := ""
			if len(args) > 0 {
				file = args[0]
			}
			return a.check(c.Context(), file, effective)
		},
	}
	c.Flags().BoolVar(&effective, "effective", false, "print the rights in full, as a profile")
	return c
}

// checked is what `skep check --json` prints.
type checked struct {
	Profile   string            `json:"profile"`
	Valid     bool              `json:"valid"`
	Digest    string            `json:"digest,omitempty"`
	Effective string            `json:"effective,omitempty"`
	Faults    profile.Faults    `json:"faults,omitempty"`
	Hidden    []pathplan.Hidden `json:"hidden,omitempty"`
	Missing   []string          `json:"missing,omitempty"`
	Notes     []string          `json:"notes,omitempty"`
}

// check looks at the paths itself, as the user, and asks skepd what of the rest this
// host can hold.
func (a *App) check(ctx context.Context, file string, effective bool) error {
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	out := checked{Profile: file}
	c, err := choose(file, cwd)
	var plan *pathplan.Plan
	if err == nil {
		out.Profile = c.name
		plan, err = a.planned(c)
	}
	if err != nil && !errors.As(err, &out.Faults) {
		return err
	}
	if out.Faults == nil {
		out.Valid, out.Digest, out.Hidden, out.Effective = true, c.profile.Digest(), plan.Hidden, c.profile.Effective()
		for _, m := range plan.Missing {
			out.Missing = append(out.Missing, m.At)
		}
		out.Notes = wildcards(c.profile)
		a.here(ctx, c, &out)
		if effective && out.Valid && !a.json {
			_, err := fmt.Fprint(a.Out, escape.Text(out.Effective))
			return err
		}
	}
	if a.json {
		err = a.printValue(out)
	} else {
		err = a.printCheck(out)
	}
	if err == nil && !out.Valid {
		return &statusError{code: statusRefused}
	}
	return err
}

// wildcards says what each rule matches that names more than one host (N27).
func wildcards(p *profile.Profile) (notes []string) {
	for _, r := range p.Net {
		if r.Dest.Kind == right.Suffix || r.Dest.Kind == right.AnyName {
			notes = append(notes, fmt.Sprintf("line %d matches %s", r.Line, r.Dest.Explain()))
		}
	}
	return notes
}

// here adds what skepd says of this host. What it cannot hold makes a profile useless
// here, as run would say with 125.
func (a *App) here(ctx context.Context, c *chosen, out *checked) {
	q := &skepv1.CheckRequest{Profile: c.source, ProfileName: c.name, ProfileDir: c.dir, Home: home()}
	if c.found != "" {
		q.Profile = []byte(c.profile.Effective())
	}
	d, err := a.daemon(ctx)
	var r *connect.Response[skepv1.CheckResponse]
	if err == nil {
		r, err = d.Check(ctx, connect.NewRequest(q))
	}
	if err != nil {
		out.Notes = append(out.Notes, "what of it this host can enforce was not looked at: "+text(err))
		return
	}
	out.Notes = append(out.Notes, r.Msg.Notes...)
	for _, f := range r.Msg.Faults {
		out.Valid = false
		out.Faults = append(out.Faults, c.profile.FaultAt(int(f.Line), f.Text, f.Message, f.Fix))
	}
}

func (a *App) planned(c *chosen) (*pathplan.Plan, error) {
	p, err := a.places()
	if err != nil {
		return nil, err
	}
	programs, err := launch.Programs()
	if err != nil {
		return nil, err
	}
	plan, _, err := c.plan(p, programs)
	return plan, err
}

func (a *App) printCheck(out checked) error {
	if !out.Valid {
		a.printFaults(out.Faults)
		return nil
	}
	fmt.Fprintf(a.Out, "%s is valid; digest %s\nits rights:\n%s", escape.Line(out.Profile), out.Digest, indent(escape.Text(out.Effective)))
	for _, h := range out.Hidden {
		fmt.Fprintf(a.Out, "hidden: %s (%s)\n", escape.Line(h.Path), h.Reason)
	}
	for _, m := range out.Missing {
		fmt.Fprintf(a.Out, "not there: %s\n", escape.Line(m))
	}
	for _, n := range out.Notes {
		fmt.Fprintln(a.Out, escape.Line(n))
	}
	return nil
}

func indent(text string) string {
	var w strings.Builder
	for line := range strings.Lines(text) {
		w.WriteString("  " + line)
	}
	return w.String()
}
