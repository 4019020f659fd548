package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/profile/pathplan"
)

func (a *App) checkCommand() *cobra.Command {
	var effective bool
	c := &cobra.Command{
		Use: "check [FILE]", Short: "Validate a profile, and say what it gives", Args: between(0, 1),
		Example: "skep check build.yaml\nskep check --effective coding-agent",
		RunE: func(_ *cobra.Command, args []string) error {
			file := ""
			if len(args) > 0 {
				file = args[0]
			}
			return a.check(file, effective)
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

// check needs no daemon: the user's own program looks at the paths.
func (a *App) check(file string, effective bool) error {
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
		out.Valid, out.Digest, out.Hidden = true, c.profile.Digest(), plan.Hidden
		for _, m := range plan.Missing {
			out.Missing = append(out.Missing, m.At)
		}
		if _, bounded := c.profile.Budget.Disk.Value(); bounded {
			out.Notes = append(out.Notes, "budget.disk: no quota of this host's; what the cell holds is measured each second, and the cell is stopped when it is more")
		}
		if effective {
			out.Effective = c.profile.Effective()
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
	if out.Effective != "" {
		_, err := fmt.Fprint(a.Out, escape.Text(out.Effective))
		return err
	}
	fmt.Fprintf(a.Out, "%s is valid; digest %s\n", escape.Line(out.Profile), out.Digest)
	for _, h := range out.Hidden {
		fmt.Fprintf(a.Out, "hidden: %s (%s)\n", escape.Line(h.Path), h.Reason)
	}
	for _, m := range out.Missing {
		fmt.Fprintf(a.Out, "not there: %s\n", escape.Line(m))
	}
	for _, n := range out.Notes {
		fmt.Fprintln(a.Out, n)
	}
	return nil
}
