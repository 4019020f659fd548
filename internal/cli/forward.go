package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/forwarder"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/forwarding"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/launch"
)

func (a *App) forwardCommand() *cobra.Command {
	return &cobra.Command{
		Use: "forward CELL PORT[:HOSTPORT]", Short: "Reach a port of a running cell from this host, until ctrl-c or the cell's end", Args: exactly(2),
		Example: "skep forward fixer 8080\nskep forward last 3000:8000\nskep forward --json fixer 8080:0",
		RunE:    func(c *cobra.Command, args []string) error { return a.forward(c.Context(), args[0], args[1]) },
	}
}

// ports reads PORT[:HOSTPORT]. Without the second both are the same; 0 is any that is free.
func ports(text string) (cell, host uint16, err error) {
	first, second, two := strings.Cut(text, ":")
	n, err := strconv.ParseUint(first, 10, 16)
	if err != nil || n == 0 {
		return 0, 0, usage("port %q: want 1 to 65535, the port at which the agent listens", first)
	}
	if !two {
		return uint16(n), uint16(n), nil
	}
	m, err := strconv.ParseUint(second, 10, 16)
	if err != nil {
		return 0, 0, usage("port %q of this host: want 1 to 65535, or 0 for any that is free", second)
	}
	return uint16(n), uint16(m), nil
}

func (a *App) forward(ctx context.Context, ref, text string) error {
	port, at, err := ports(text)
	if err != nil {
		return err
	}
	d, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	r, err := d.Get(ctx, connect.NewRequest(&skepv1.GetRequest{Cell: ref}))
	if err != nil {
		return err
	}
	id := r.Msg.Id
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	first, err := a.openPort(ctx, d, id, port) // before it listens: a cell that does not run says so
	if err != nil {
		return err
	}
	listeners, err := forwarder.Listen(at)
	if err != nil {
		_ = first.Close()
		return busyPort(err, port)
	}
	f := &forwarder.Forwarder{
		Listeners: listeners, User: uint32(os.Getuid()), Tell: func(e forwarder.Event) { a.tellForwarded(e, port) },
		Open: func(ctx context.Context) (*os.File, error) {
			if channel := first; channel != nil {
				first = nil
				return channel, nil
			}
			return a.reopenPort(ctx, d, id, port)
		},
	}
	a.sayForwarding(listeners, id, port)
	err = f.Run(ctx)
	if errors.Is(err, forwarder.ErrOver) {
		if a.json {
			return a.printValue(map[string]string{"event": "over"})
		}
		a.say("cell %s has ended", id)
		return nil
	}
	return err
}

// openPort gets a channel to the box that serves a cell now.
func (a *App) openPort(ctx context.Context, d *daemon, id string, port uint16) (*os.File, error) {
	r, err := d.Forward(ctx, connect.NewRequest(&skepv1.ForwardRequest{Cell: id, Port: uint32(port)}))
	if err != nil {
		return nil, err
	}
	b, err := handover.Fetch(launch.HandoverSocket(d.places), r.Msg.Ticket)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	channel := b.Take(handover.RoleForward, "")
	if channel == nil {
		return nil, errors.New("skepd handed over no channel to the cell")
	}
	return channel, nil
}

// reopenPort is openPort for one that was open: the cell has ended, or has another box or
// will have one in a moment.
func (a *App) reopenPort(ctx context.Context, d *daemon, id string, port uint16) (*os.File, error) {
	for late := time.After(endRecorded); ; {
		channel, err := a.openPort(ctx, d, id, port)
		if err == nil {
			return channel, nil
		}
		if r, failed := d.Get(ctx, connect.NewRequest(&skepv1.GetRequest{Cell: id})); failed == nil && ended(r.Msg) {
			return nil, forwarder.ErrOver
		}
		select {
		case <-late:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func busyPort(err error, port uint16) error {
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
		return &fixable{err.Error(), fmt.Sprintf("choose another port of this host, as in `skep forward CELL %d:0` for any that is free", port), err}
	}
	return err
}

// forwardingSaid is the first line of JSON.
type forwardingSaid struct {
	Event     string   `json:"event"` // listening
	Cell      string   `json:"cell"`
	Port      uint16   `json:"port"` // of the cell
	Addresses []string `json:"addresses"`
}

func (a *App) sayForwarding(listeners []*net.TCPListener, id string, port uint16) {
	s := forwardingSaid{Event: "listening", Cell: id, Port: port}
	for _, l := range listeners {
		s.Addresses = append(s.Addresses, l.Addr().String())
	}
	if a.json {
		_ = a.printValue(s) // whoever reads it sees that nothing comes
		return
	}
	a.say("%s reaches port %d of cell %s, until ctrl-c", s.Addresses[0], port, id)
}

// forwardedSaid is a line of JSON for each connection that came, opened, was refused or ended.
type forwardedSaid struct {
	Event      string `json:"event"` // opened, refused or ended
	Connection uint32 `json:"connection"`
	Reason     string `json:"reason,omitempty"`
}

func (a *App) tellForwarded(e forwarder.Event, port uint16) {
	word := map[forwarding.What]string{forwarding.Opened: "opened", forwarding.Refused: "refused", forwarding.Ended: "ended"}[e.What]
	switch {
	case a.json:
		_ = a.printValue(forwardedSaid{word, e.ID, e.Reason.Token()})
	case e.What != forwarding.Refused:
	case e.Reason == flow.IngressUnreachable:
		a.say("refused a connection: nothing listens on port %d in the cell", port)
	case e.Reason == flow.IdentityUnknown:
		a.say("refused a connection of user %d: the port is yours alone", e.User)
	case e.Reason.Sentence() != "":
		a.say("refused a connection: %s", e.Reason.Sentence())
	default:
		a.say("refused a connection: %s", e.Reason.Token())
	}
}
