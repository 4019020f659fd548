package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/client"
	"skep.dev/skep/internal/cli/opened"
	"skep.dev/skep/internal/cli/terminal"
	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/sys"
)

// runFlags are those of `skep run`.
type runFlags struct {
	profile, name, result string
	yes, detach           bool
}

func (a *App) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] -- PROGRAM [ARGUMENTS]",
		Short: "Run a program in a cell",
		Example: "skep run -- ./agent make the tests pass\nskep run --profile build.yaml --name fixer -- ./agent\n" +
			"skep run --detach --result end.json -- ./agent",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("usage: skep run [flags] -- PROGRAM [ARGUMENTS]")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			err := a.runCell(c.Context(), &f, args)
			var status *statusError
			if err != nil && !errors.As(err, &status) {
				return &statusError{statusFailed, err}
			}
			return err
		},
	}
	fl := c.Flags()
	fl.SetInterspersed(false)
	fl.StringVar(&f.profile, "profile", "", "profile: a file, or "+strings.Join(profile.Names(), ", ")+" (default "+profile.Default+")")
	fl.StringVar(&f.name, "name", "", "a name for the cell")
	fl.StringVar(&f.result, "result", "", "write how the cell ended to this file, as JSON")
	fl.BoolVarP(&f.yes, "yes", "y", false, "confirm the profile's rights")
	fl.BoolVarP(&f.detach, "detach", "d", false, "leave the cell running and print its id")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "say nothing at the end")
	return c
}

// runCell is one run: choose, confirm, open, start, carry bytes, tell the end.
func (a *App) runCell(ctx context.Context, f *runFlags, argv []string) error {
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	c, err := choose(f.profile, cwd)
	if err != nil {
		return err
	}
	how, err := a.confirm(c, f.yes)
	if err != nil {
		return err
	}
	d, err := a.near(ctx)
	if err != nil {
		return err
	}
	var b opened.Bundle
	defer b.Close()
	if err := a.openFor(c, d, &b, cwd); err != nil {
		return err
	}
	q := &skepv1.RunRequest{
		Profile: c.source, ProfileName: c.name, ProfileDir: c.dir, Narrowing: c.narrowing, NarrowingName: c.found,
		ConfirmedDigest: c.profile.Digest(), ConfirmedHow: how, Argv: argv, Env: a.passedEnv(c.profile), WorkingDir: cwd,
		Name: f.name, Home: home(),
	}
	if c.profile.Agent.Granted {
		if q.HostKeys, err = agent(a.variable(profile.AgentVariable), c.profile, &b); err != nil {
			return err
		}
	}
	s := &session{app: a, daemon: d, request: q, flags: f, raw: c.profile.Raw}
	return s.run(ctx, &b)
}

// openFor opens the paths that the profile grants, for a cell that begins in cwd.
func (a *App) openFor(c *chosen, d *daemon, b *opened.Bundle, cwd string) error {
	programs, err := launch.Programs()
	if err != nil {
		return err
	}
	plan, links, err := c.plan(d.places, programs)
	if err != nil {
		return err
	}
	if os.Getuid() == 0 {
		if err := opened.Passable(plan, cwd); err != nil {
			return err
		}
	}
	if c.found != "" && !a.quiet {
		a.say("%s narrows the rights of %s", escape.Line(c.found), profile.Default)
	}
	if err := b.Plan(plan, links); err != nil {
		return err
	}
	return b.Secrets(c.profile.Secrets, a.Env)
}

// variable is one of our environment; "" where it is not set.
func (a *App) variable(name string) (value string) {
	for _, pair := range a.Env {
		if v, ok := strings.CutPrefix(pair, name+"="); ok {
			value = v
		}
	}
	return value
}

// passedEnv takes from our environment what the profile lists by name.
func (a *App) passedEnv(p *profile.Profile) map[string]string {
	out := map[string]string{}
	for _, name := range p.Env.Pass {
		for _, pair := range a.Env {
			if value, ok := strings.CutPrefix(pair, name+"="); ok {
				out[name] = value
			}
		}
	}
	return out
}

// session is a run from the request to the exit status.
type session struct {
	app     *App
	daemon  *daemon
	request *skepv1.RunRequest
	flags   *runFlags
	raw     bool

	id      string   // once it is known
	notices []string // that came while the agent had the terminal
}

// run starts the cell and stays with it.
func (s *session) run(ctx context.Context, b *opened.Bundle) error {
	var ours *os.File
	if !s.flags.detach {
		var theirs *os.File
		var err error
		if ours, theirs, err = sys.StreamPair(); err != nil {
			return err
		}
		defer func() { _ = ours.Close() }()
		b.Add(handover.RoleStdio, "", theirs)
		if err := s.terminal(); err != nil {
			return err
		}
	}
	heard, err := s.ask(ctx, b)
	if err != nil {
		return err
	}
	stream := &events{heard}
	defer func() { stream.Close() }()
	if s.flags.detach {
		err = s.detached(ctx, stream)
	} else {
		err = s.attended(ctx, stream, ours)
	}
	return s.misfit(ctx, err)
}

// terminal asks for a pseudo-terminal if both ends of ours are one.
func (s *session) terminal() error {
	if !terminal.IsTerminal(s.app.In) || !terminal.IsTerminal(s.app.Out) {
		return nil
	}
	size, err := terminal.SizeOf(s.app.Out)
	if err != nil {
		return fmt.Errorf("ask for the size of the terminal: %w", err)
	}
	s.request.Terminal = &skepv1.TerminalSize{Rows: uint32(size.Rows), Columns: uint32(size.Columns)}
	return nil
}

// events are what a run hears of its cell, from one skepd after the other.
type events struct{ *client.Events }

// again goes on with the skepd that took the place of the one that was heard.
func (e *events) again(ctx context.Context, s *session) error {
	next, err := client.Follow(ctx, launch.APISocket(s.daemon.places), s.daemon.places.State, s.id)
	if err != nil {
		return err
	}
	e.Close()
	e.Events = next
	return nil
}

// next gives the next state of the cell, and prints notices on the way.
func (s *session) next(ctx context.Context, stream *events) (*skepv1.Cell, error) {
	for stream.Receive() {
		m := stream.Msg()
		if m.Notice != "" && s.id == "" {
			s.note(m.Notice)
		} else if m.Notice != "" {
			s.notices = append(s.notices, m.Notice)
		}
		if m.Cell != nil {
			return m.Cell, nil
		}
	}
	err := stream.Err()
	if client.IsAgain(err) && s.id != "" {
		if err = stream.again(ctx, s); err == nil {
			return s.next(ctx, stream)
		}
	}
	if err != nil && !broken(err) {
		return nil, err
	}
	if s.id == "" {
		return nil, &fixable{"skepd ended before it had started the cell", "run it again", err}
	}
	return nil, &fixable{
		"skepd ended before the cell, so its status is not known here",
		fmt.Sprintf("`skep why %s` says how it ended, `skep diff %s` what it changed: the next command starts another skepd, which records it", s.id, s.id), err,
	}
}

func (s *session) note(text string) {
	if !s.app.quiet {
		s.app.say("%s", strings.TrimSpace(escape.Text(text))) // faults of a file have their lines
	}
}

// detached prints the id of a cell that runs on its own.
func (s *session) detached(ctx context.Context, stream *events) error {
	c, err := s.next(ctx, stream)
	if err != nil {
		return err
	}
	if c.State == skepv1.CellState_CELL_STATE_FAILED {
		return s.ended(ctx, c)
	}
	if s.app.json {
		return s.app.printJSON(c)
	}
	fmt.Fprintln(s.app.Out, c.Id)
	return nil
}

// attended carries bytes until the warden hangs up, then waits for the end's record.
func (s *session) attended(ctx context.Context, stream *events, conn *os.File) error {
	c, err := s.next(ctx, stream)
	if err != nil {
		return err
	}
	s.id = c.Id
	// A quick agent may have ended before this first word of it; what it wrote is
	// still on its way.
	if c.State == skepv1.CellState_CELL_STATE_FAILED {
		return s.ended(ctx, c)
	}
	var shown terminal.LastLine
	console := terminal.Console{In: s.app.In, Out: shown.Of(s.app.Out), Err: shown.Of(s.app.Err), Raw: s.raw}
	if s.request.Terminal != nil {
		console.Terminal = s.app.In
	}
	staying, leave := context.WithCancel(ctx)
	defer leave()
	end := s.watch(staying, stream, c)
	stop := s.signals(ctx)
	signal.Ignore(syscall.SIGPIPE) // as an error it can be told from a cell that went wrong
	detached, err := terminal.Session(context.WithoutCancel(ctx), conn, console)
	stop()
	if shown.Open() && !detached && (!s.app.quiet || err != nil) && terminal.IsTerminal(s.app.Err) {
		fmt.Fprintln(s.app.Err) // what we say stands on its own line
	}
	if errors.Is(err, syscall.EPIPE) {
		return s.unheard(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w; the cell goes on: skep attach %s", err, c.Id)
	}
	if detached {
		if !s.app.quiet {
			fmt.Fprint(s.app.Err, "\r\n")
			s.app.say("detached; skep attach %s", c.Id)
		}
		return nil
	}
	last := <-end
	for _, text := range s.notices {
		s.note(text)
	}
	if last.err != nil {
		return last.err
	}
	return s.ended(ctx, last.cell)
}

// heard is how a cell ended, or why that is not known.
type heard struct {
	cell *skepv1.Cell
	err  error
}

// watch follows a cell beside its agent, and says at once when skepd is gone: the agent
// may work on for hours without noticing more than that nothing answers.
func (s *session) watch(staying context.Context, stream *events, c *skepv1.Cell) <-chan heard {
	end := make(chan heard, 1)
	go func() {
		h := heard{cell: c}
		for h.err == nil && !ended(h.cell) {
			h.cell, h.err = s.next(staying, stream)
		}
		if errors.As(h.err, new(*fixable)) && staying.Err() == nil {
			s.orphaned()
		}
		end <- h
	}()
	return end
}

// orphaned tells what a cell without skepd can do, and how to end it.
func (s *session) orphaned() {
	line := fmt.Sprintf("skepd is gone: what the agent sends has no way out any more, and nothing is recorded; "+
		"`skep stop %s` in another terminal starts another skepd, which ends the cell and keeps what it changed", s.id)
	if s.request.Terminal == nil || s.app.json {
		s.app.say("%s", line)
		return
	}
	fmt.Fprintf(s.app.Err, "\r\nskep: %s\r\n", line) // the terminal is raw
}

// unheard ends a cell whose output nobody reads any more, as a broken pipe ends a
// program that runs without a cell.
func (s *session) unheard(ctx context.Context) error {
	q := &skepv1.StopRequest{Cell: s.id, GraceMs: 1000}
	if _, err := s.daemon.Stop(context.WithoutCancel(ctx), connect.NewRequest(q)); err != nil {
		return err
	}
	return &statusError{code: 128 + int(syscall.SIGPIPE)}
}

// signals turns the first interrupt into a polite stop, the second into the end.
// With a terminal of its own the agent gets Ctrl-C itself.
func (s *session) signals(ctx context.Context) (stop func()) {
	got := make(chan os.Signal, 4)
	watched := []os.Signal{syscall.SIGTERM, syscall.SIGHUP} // a closed terminal ends its programs
	if s.request.Terminal == nil {
		watched = append(watched, syscall.SIGINT)
	}
	signal.Notify(got, watched...)
	done := make(chan struct{})
	go func() {
		grace := int64(0) // the daemon's own
		for {
			select {
			case <-got:
				q := &skepv1.StopRequest{Cell: s.id, GraceMs: grace}
				go func() { _, _ = s.daemon.Stop(context.WithoutCancel(ctx), connect.NewRequest(q)) }()
				grace = 1
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(got)
		close(done)
	}
}

func ended(c *skepv1.Cell) bool {
	switch c.State {
	case skepv1.CellState_CELL_STATE_STOPPED, skepv1.CellState_CELL_STATE_FAILED,
		skepv1.CellState_CELL_STATE_MERGED, skepv1.CellState_CELL_STATE_DROPPED, skepv1.CellState_CELL_STATE_UNDONE:
		return true
	default:
		return false
	}
}
