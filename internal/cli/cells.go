package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/opened"
	"skep.dev/skep/internal/cli/terminal"
	"skep.dev/skep/internal/cli/words"
	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/sys"
)

func (a *App) psCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "ps", Short: "List cells", Args: exactly(0),
		Example: "skep ps --all\nskep ps --all --json | jq -r .id",
		RunE:    func(c *cobra.Command, _ []string) error { return a.ps(c.Context(), all) },
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended")
	return c
}

func (a *App) ps(ctx context.Context, all bool) error {
	d, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	r, err := d.List(ctx, connect.NewRequest(&skepv1.ListRequest{All: all}))
	if err != nil {
		return err
	}
	if a.json {
		for _, c := range r.Msg.Cells {
			if err := a.printJSON(c); err != nil {
				return err
			}
		}
		return nil
	}
	return a.table("CELL\tNAME\tSTATE\tSTARTED\tENDED BY\tREFUSED\tPROGRAM", func(w io.Writer) {
		for _, c := range r.Msg.Cells {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", c.Id, words.Dash(c.Name), words.State(c.State), words.Clock(c.Created),
				words.Dash(endText(c)), c.CrossingsRefused, escape.Line(strings.Join(c.Argv, " ")))
		}
	})
}

// columns is the width of the terminal that the output goes to, 0 where there is none.
func (a *App) columns() int {
	if !terminal.IsTerminal(a.Out) {
		return 0
	}
	size, err := terminal.SizeOf(a.Out)
	if err != nil {
		return 0
	}
	return int(size.Columns)
}

// narrow cuts each line to a width in columns, unless it is 0, and marks what it cuts.
func narrow(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if runes := []rune(line); len(runes) > columns {
			line = string(runes[:columns-1]) + "…"
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

// endText says why a cell ended, and with what status.
func endText(c *skepv1.Cell) string {
	if !ended(c) {
		return ""
	}
	if c.Cause == "exit" {
		what := fmt.Sprintf("exit %d", c.ExitCode)
		if limit, _, _ := strings.Cut(c.Error, " "); strings.HasPrefix(limit, "budget.") { // one that only refused
			what += ", " + escape.Line(limit)
		}
		return what
	}
	cause, _, _ := strings.Cut(c.Cause, ": ")
	if cause == "budget" {
		cause = c.Cause
	}
	return escape.Line(cause)
}

func (a *App) logsCommand() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use: "logs CELL", Short: "Show what a cell's agent wrote: the first MiB and the last seven", Args: exactly(1),
		Example: "skep logs last\nskep logs --follow fixer >output",
		RunE:    func(c *cobra.Command, args []string) error { return a.logs(c.Context(), args[0], follow) },
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more until the cell ends")
	return c
}

// logs escapes what a terminal of ours shows; a pipe gets the bytes.
func (a *App) logs(ctx context.Context, ref string, follow bool) error {
	d, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	q := &skepv1.LogsRequest{Cell: ref, Follow: follow}
	if follow { // if skepd is replaced, it is the same cell that is followed
		c, err := d.Get(ctx, connect.NewRequest(&skepv1.GetRequest{Cell: ref}))
		if err != nil {
			return err
		}
		q.Cell = c.Msg.Id
		return a.copyLog(ctx, d, q, a.Out)
	}
	return a.paged(func(w io.Writer) error { return a.copyLog(ctx, d, q, w) })
}

// copyLog copies from one skepd after the other.
func (a *App) copyLog(ctx context.Context, d *daemon, q *skepv1.LogsRequest, w io.Writer) error {
	safe := escape.NewWriter(w)
	shown := terminal.IsTerminal(a.Out)
	for {
		stream, err := d.Logs(ctx, connect.NewRequest(q))
		if err != nil {
			return err
		}
		err = a.copyChunks(stream, q, w, safe, shown)
		if shown {
			if failed := safe.Flush(); err == nil {
				err = failed
			}
		}
		_ = stream.Close()
		if !d.goesOn(ctx, err) {
			return err
		}
	}
}

// copyChunks notes in q how far it came.
func (a *App) copyChunks(stream *connect.ServerStreamForClient[skepv1.LogChunk], q *skepv1.LogsRequest, w io.Writer, safe *escape.Writer, shown bool) error {
	for stream.Receive() {
		m := stream.Msg()
		q.From += uint64(len(m.Data)) + uint64(m.Dropped)
		var err error
		switch {
		case a.json:
			err = a.printJSON(m)
		case shown:
			_, err = safe.Write(cut(m))
		default:
			_, err = w.Write(cut(m))
		}
		if err != nil {
			return err
		}
	}
	return stream.Err()
}

// cut is a chunk with a mark where bytes were dropped before it.
func cut(m *skepv1.LogChunk) []byte {
	if m.Dropped == 0 {
		return m.Data
	}
	return append(fmt.Appendf(nil, "\n[skep: %s dropped here]\n", words.Count(m.Dropped, "byte")), m.Data...)
}

func (a *App) attachCommand() *cobra.Command {
	var raw bool
	c := &cobra.Command{
		Use: "attach CELL", Short: "Connect this terminal to a running cell; ctrl-p ctrl-q leaves it", Args: exactly(1),
		Example: "skep run --detach --name fixer -- ./agent\nskep attach fixer",
		RunE:    func(c *cobra.Command, args []string) error { return a.attach(c.Context(), args[0], raw) },
	}
	c.Flags().BoolVar(&raw, "raw", false, "pass clipboard, title and report sequences of the agent on")
	return c
}

func (a *App) attach(ctx context.Context, ref string, raw bool) error {
	d, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		return err
	}
	defer func() { _ = ours.Close() }()
	var b opened.Bundle
	b.Add(handover.RoleStdio, "", theirs)
	ticket, err := handover.Offer(launch.HandoverSocket(d.places), b.Roles, b.Files)
	b.Close()
	if err != nil {
		return err
	}
	r, err := d.Get(ctx, connect.NewRequest(&skepv1.GetRequest{Cell: ref}))
	if err != nil {
		return err
	}
	id := r.Msg.Id
	if _, err := d.Attach(ctx, connect.NewRequest(&skepv1.AttachRequest{Cell: id, Ticket: ticket})); err != nil {
		return err
	}
	console := terminal.Console{In: a.In, Out: a.Out, Err: a.Err, Raw: raw, Later: true}
	if terminal.IsTerminal(a.In) && terminal.IsTerminal(a.Out) {
		console.Terminal = a.In
	}
	detached, err := terminal.Session(ctx, ours, console)
	if detached {
		fmt.Fprint(a.Err, "\r\n")
		a.say("detached")
	}
	if detached || err != nil {
		return err
	}
	return a.left(ctx, d, id)
}

// endRecorded is how long the record of an end may follow the end of the agent's bytes.
const endRecorded = 5 * time.Second

// left tells why the bytes of a cell ended: with the cell, whose status stays with
// `skep run` or `skep why`, or because another client took its place.
func (a *App) left(ctx context.Context, d *daemon, id string) error {
	late := time.After(endRecorded)
	for {
		r, err := d.Get(ctx, connect.NewRequest(&skepv1.GetRequest{Cell: id}))
		if err != nil {
			return err
		}
		if ended(r.Msg) {
			return (&session{app: a}).footer(r.Msg)
		}
		select {
		case <-late:
			a.say("cell %s goes on: another terminal was attached to it", id)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (a *App) stopCommand() *cobra.Command {
	var grace time.Duration
	c := &cobra.Command{
		Use: "stop CELL", Short: "Ask a cell's agent to end, then end it", Args: exactly(1),
		Example: "skep stop last\nskep stop --grace 1m fixer",
		RunE: func(c *cobra.Command, args []string) error {
			if grace < time.Millisecond {
				return usage("--grace %s: at least 1ms", grace)
			}
			d, err := a.daemon(c.Context())
			if err != nil {
				return err
			}
			r, err := d.Stop(c.Context(), connect.NewRequest(&skepv1.StopRequest{Cell: args[0], GraceMs: grace.Milliseconds()}))
			if err != nil {
				return err
			}
			return a.tell(r.Msg, "is "+words.State(r.Msg.State))
		},
	}
	c.Flags().DurationVar(&grace, "grace", 10*time.Second, "time between asking the agent and ending it")
	return c
}

// tell prints a cell, or one line about it.
func (a *App) tell(c *skepv1.Cell, what string) error {
	if a.json {
		return a.printJSON(c)
	}
	_, err := fmt.Fprintf(a.Out, "cell %s %s\n", c.Id, what)
	return err
}

func (a *App) dropCommand() *cobra.Command {
	return &cobra.Command{
		Use: "drop CELL", Short: "Throw away what a cell changed", Args: exactly(1),
		Example: "skep drop last",
		RunE:    func(c *cobra.Command, args []string) error { return a.drop(c.Context(), args[0]) },
	}
}

// drop is done again for a cell that was dropped: what a crash left of it goes too.
func (a *App) drop(ctx context.Context, ref string) error {
	d, err := a.ready(ctx)
	if err != nil {
		return err
	}
	was, err := d.Get(ctx, connect.NewRequest(&skepv1.GetRequest{Cell: ref}))
	if err != nil {
		return err
	}
	r, err := d.Drop(ctx, connect.NewRequest(&skepv1.DropRequest{Cell: was.Msg.Id}))
	if err != nil {
		return err
	}
	what := "dropped"
	switch was.Msg.State {
	case skepv1.CellState_CELL_STATE_DROPPED:
		what = "is dropped already"
	case skepv1.CellState_CELL_STATE_MERGED:
		what = "is merged: what it changed is in your tree, and its layer went with the merge: there was nothing to drop"
	case skepv1.CellState_CELL_STATE_UNDONE:
		what = "is undone: a merge of it was taken back, and its layer had gone with the merge: there was nothing to drop"
	}
	return a.tell(r.Msg, what)
}
