package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/client"
	"skep.dev/skep/internal/build"
	"skep.dev/skep/internal/launch"
)

// upgradePart is one kind of program that is replaced, in this order.
type upgradePart struct {
	name string
	part skepv1.UpgradePart
}

func upgradeParts() []upgradePart {
	return []upgradePart{
		{"worker", skepv1.UpgradePart_UPGRADE_PART_WORKER},
		{"skepd", skepv1.UpgradePart_UPGRADE_PART_SKEPD},
		{"boxes", skepv1.UpgradePart_UPGRADE_PART_BOXES},
	}
}

// upgraded is what a program reads of one part.
type upgraded struct {
	Part  string   `json:"part"`
	Build string   `json:"build,omitempty"`
	Cells []string `json:"cells,omitempty"`
}

func (a *App) upgradeCommand() *cobra.Command {
	var only []string
	c := &cobra.Command{
		Use: "upgrade", Short: "Replace Skep's programs under running cells by those that are installed now", Args: exactly(0),
		Example: "skep upgrade\nskep upgrade --only skepd --only worker",
		RunE:    func(c *cobra.Command, _ []string) error { return a.upgrade(c.Context(), only) },
	}
	c.Flags().StringSliceVar(&only, "only", nil, "replace only this: worker, skepd or boxes (repeatable)")
	return c
}

// upgrade replaces one part after the other, and stops at the first that cannot be.
func (a *App) upgrade(ctx context.Context, only []string) error {
	parts := upgradeParts()
	for _, name := range only {
		if !slices.ContainsFunc(parts, func(p upgradePart) bool { return p.name == name }) {
			return usage("--only %q: worker, skepd or boxes", name)
		}
	}
	d, err := a.connection()
	if err != nil {
		return err
	}
	if _, ok := launch.Listener(launch.APISocket(d.places)); !ok {
		if !a.json {
			fmt.Fprintln(a.Out, "no skepd runs: the next command starts the one that is installed now")
		}
		return nil
	}
	for _, p := range parts {
		if len(only) > 0 && !slices.Contains(only, p.name) {
			continue
		}
		done, err := a.upgradeOne(ctx, d, p)
		if err != nil {
			return err
		}
		if err := a.printUpgraded(done); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) upgradeOne(ctx context.Context, d *daemon, p upgradePart) (upgraded, error) {
	done := upgraded{Part: p.name}
	before, err := client.Negotiate(ctx, d)
	if err != nil {
		return done, err
	}
	r, err := d.Upgrade(ctx, connect.NewRequest(&skepv1.UpgradeRequest{Part: p.part}))
	switch {
	case connect.CodeOf(err) == connect.CodeUnimplemented:
		return done, &fixable{"the skepd that runs is too old to be replaced under its cells", "end it when its cells have ended: `skep ps` lists them", err}
	case p.part == skepv1.UpgradePart_UPGRADE_PART_SKEPD && err != nil && !connect.IsWireError(err):
		return a.anotherSkepd(ctx, d, before.Instance, err)
	case err != nil:
		return done, &fixable{notReplaced(p.name, err), "nothing has changed" + map[bool]string{true: " for the cells that are named"}[p.name == "boxes"], err}
	}
	done.Build, done.Cells = r.Msg.Build, r.Msg.Cells
	return done, nil
}

// notReplaced says which program stays, and why.
func notReplaced(part string, err error) string {
	why := err.Error()
	if e := new(connect.Error); errors.As(err, &e) {
		why = e.Message()
	}
	who := map[string]string{"worker": "skep-worker was", "skepd": "skepd was", "boxes": "a box was"}[part]
	return who + " not replaced: " + why
}

// anotherSkepd waits for the one that took the place.
func (a *App) anotherSkepd(ctx context.Context, d *daemon, before string, why error) (upgraded, error) {
	done := upgraded{Part: "skepd"}
	within, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		v, err := client.Negotiate(within, client.New(launch.APISocket(d.places)))
		switch {
		case err == nil && v.Fault != "":
			return done, &fixable{"the skepd that took the place could not go on with the running cells, and has ended them: " + v.Fault,
				"`skep ps --all` lists them, what they changed is kept", why}
		case err == nil && v.Instance != before:
			done.Build = build.Build{Version: v.Version, Commit: v.Commit}.String()
			return done, nil
		case err == nil:
			return done, errors.New(notReplaced("skepd", why))
		}
		select {
		case <-tick.C:
		case <-within.Done():
			return done, &fixable{"no skepd answers after the replacement", "the next command starts one; its log says what happened", errors.Join(why, err)}
		}
	}
}

func (a *App) printUpgraded(u upgraded) error {
	if a.json {
		return a.printValue(u)
	}
	line := "replaced " + u.Part
	switch {
	case u.Build != "":
		line += ": " + u.Build
	case len(u.Cells) > 0:
		line += " of " + strings.Join(u.Cells, ", ")
	default:
		line += ": no cell runs"
	}
	_, err := fmt.Fprintln(a.Out, line)
	return err
}
