// Package manual is what help, man pages and docs/cli.md say alike beside a command's
// flags and examples.
//
// Its law: it is said here once.
package manual

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"skep.dev/skep/internal/ledger/verify"
)

// Row is one line of a section.
type Row struct{ Head, Text string }

// Section is a part of a page.
type Section struct {
	Title string
	Rows  []Row
}

// Of is the rest of a command's page.
func Of(c *cobra.Command) []Section {
	out := []Section{{"Exit status", Statuses(c)}}
	if c.HasParent() && c.HasSubCommands() {
		return nil
	}
	return append(out, Section{"Files", Files()}, Section{"Environment", Environment()})
}

// Statuses are those that a command ends with (L19, L19a).
func Statuses(c *cobra.Command) []Row {
	switch c.CommandPath() {
	case "skep run":
		return []Row{
			{"0 to 255", "the agent's own, or 128 and the number of the signal that ended it"},
			{"124", "a budget ended the cell"},
			{"125", "Skep failed; the sentence says why"},
			{"126, 127", "the program is not executable, or not found"},
		}
	case "skep ledger verify":
		var rows []Row
		for _, s := range []verify.Status{
			verify.Valid, verify.CannotRead, verify.Empty, verify.UnsignedTail, verify.Truncated, verify.Altered,
			verify.Forked, verify.WrongKey, verify.Unknown,
		} {
			rows = append(rows, Row{strconv.Itoa(int(s)), s.String()})
		}
		return append(rows, Row{"2", "the command line is wrong"})
	}
	rows := []Row{{"0", "done"}, {"1", "refused or failed; the sentence says why"}, {"2", "the command line is wrong"}}
	switch c.CommandPath() {
	case "skep", "skep attach", "skep box denials", "skep diff", "skep drop", "skep forward", "skep ledger show", "skep logs", "skep merge", "skep stop", "skep why":
		rows = append(rows, Row{"3", "no such cell, or no such event"})
	}
	switch c.CommandPath() {
	case "skep forward":
		rows[0].Text = "ctrl-c, or the cell has ended"
	case "skep diff":
		rows[1].Text += "; with --exit-code: there are differences"
	case "skep doctor":
		rows[1].Text += "; or something is missing that a cell needs"
	case "skep check":
		rows[1].Text = "the profile has faults, or cannot be read"
	}
	return rows
}

// Files are where things are.
func Files() []Row {
	return []Row{
		{"~/.local/state/skep", "state: keys, ledger, layers, logs, journals of merges; root's skepd has /var/lib/skep"},
		{"$XDG_RUNTIME_DIR/skep", "run time: the sockets of skepd and its log; else /tmp/skep-UID, for root /run/skep"},
		{"~/.config/skep/config.yaml", "models: targets and roles; metrics: a socket where skepd serves numbers; else /etc/skep/config.yaml"},
		{"/etc/skep/ceiling.yaml", "what no profile passes"},
		{".skep.yaml", "of a project: narrows the default profile of a run in its directory"},
	}
}

// Environment is what is read of it.
func Environment() []Row {
	return []Row{
		{"SKEP_STATE, SKEP_RUN", "the state and the run-time directory, as --state and --run"},
		{"XDG_STATE_HOME, XDG_RUNTIME_DIR, XDG_CONFIG_HOME", "where these are else"},
		{"PAGER, LESS", "what shows diff, logs and ledger on a terminal (less, with FRX); cat or nothing for none"},
		{"NO_COLOR, TERM", "no colours, where set, or dumb"},
	}
}

// Print is the end of a command's help: its statuses, and for all of Skep the rest.
func Print(w io.Writer, c *cobra.Command) {
	for _, s := range Of(c) {
		if s.Title != "Exit status" && c.HasParent() {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", s.Title)
		t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
		for _, r := range s.Rows {
			fmt.Fprintf(t, "  %s\t%s\n", r.Head, r.Text)
		}
		_ = t.Flush()
	}
}
