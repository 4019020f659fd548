// Package connector is the body of skep-connector, which `skep-box run` and `skep-box
// serve` hand over to: flags to a connector, its signals and its end.
//
// Its laws:
//   - It verifies who an agent is unless it was told, by name, not to.
//   - It reads bundles, credentials and the ceiling; the boxes that it starts read no file.
package connector

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/bundle"
	"skep.dev/skep/internal/config"
	"skep.dev/skep/internal/credential"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/connector"
	"skep.dev/skep/internal/daemon/connector/metrics"
	"skep.dev/skep/internal/daemon/resolvers"
	"skep.dev/skep/internal/dest/issuer"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/place"
	"skep.dev/skep/internal/policy"
)

// nobody is who boxes run as where the connector is root: they need no right of a user.
const nobody = 65534

// Run serves until a signal, or performs a command that only reads.
func Run(args []string, stdout, stderr io.Writer) error {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "run", "serve":
		return serveCells(args, stderr)
	case "explain", "denials", "limits":
		return look(command, args[1:], stdout, stderr)
	}
	fmt.Fprint(stderr, usage)
	return errors.New("say what to do")
}

func serveCells(args []string, stderr io.Writer) error {
	o, err := parse(args[0], args[1:], stderr)
	if err != nil {
		return err
	}
	if o.ledger && args[0] == "serve" {
		if err := o.housed(); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	c, err := o.connector(ctx)
	if err != nil {
		return err
	}
	lost, stopLedger, err := o.ledgered(c)
	if err != nil {
		return err
	}
	defer stopLedger()
	watcher, err := resolvers.Watch(clock{}, resolvers.System(), c.Renamed)
	if err != nil {
		return err
	}
	defer watcher.Close()
	c.Names = watcher.Current
	if o.metrics != "" {
		stopMetrics, err := o.serveMetrics(c.Counts)
		if err != nil {
			return err
		}
		defer stopMetrics()
	}
	if o.unverified {
		fmt.Fprintln(stderr, "skep-box: --insecure-unverified-bundle: nobody has verified who the agent is")
	}
	if args[0] == "run" {
		err = o.run(ctx, c, again, stderr)
	} else {
		err = o.serve(ctx, c, stderr)
	}
	err = errors.Join(err, lost())
	return errors.Join(err, c.Close())
}

// clock is the machine's.
type clock struct{}

func (clock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// connector is what the flags make.
func (o options) connector(ctx context.Context) (*connector.Connector, error) {
	programs, err := launch.Programs()
	if err != nil {
		return nil, err
	}
	c := &connector.Connector{
		Box: filepath.Join(programs, "skep-box"), Dir: o.dir, Unverified: o.unverified, Ceiling: o.ceilingNow,
		Owner: o.owner, UDP: o.udp, Flows: o.flows, Head: o.head, Idle: o.idle,
		Ingress: o.ingress, Guest: o.guest, Form: o.form, Monitor: uint32(o.monitor),
		Names: func() *skepv1.ResolverUpdate { return nil },
	}
	if o.metrics != "" {
		c.Counts = &metrics.Counts{}
	}
	if os.Geteuid() == 0 {
		c.User = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	if _, err := o.ceilingNow(); err != nil { // now, and not first when an agent is waiting
		return nil, err
	}
	if o.issuer != "" {
		if c.Verifier, err = o.verifier(ctx); err != nil {
			return nil, err
		}
	}
	if !o.ledger {
		c.Sink, err = connector.OpenSink(o.records)
	}
	return c, err
}

// ledgered has c record with skepd, until stop is called.
func (o *options) ledgered(c *connector.Connector) (lost func() error, stop func(), err error) {
	if !o.ledger {
		return func() error { return nil }, func() {}, nil
	}
	p, err := places()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l, err := connector.OpenLedger(ctx, launch.APISocket(p), func(agent string) { _ = c.Detach(ctx, agent) }) // what fails is in the record
	if err != nil {
		cancel()
		return nil, nil, err
	}
	c.Sink, o.lost = l, l.Lost()
	return func() error {
		select {
		case <-l.Lost():
			return l.Why()
		default:
			return nil
		}
	}, cancel, nil
}

// places are skepd's.
func places() (place.Places, error) {
	return place.Find(place.Input{UID: os.Getuid(), Home: os.Getenv("HOME"), Getenv: os.Getenv})
}

// housed gives control socket and agents a place beside skepd's, which no cell sees, where
// flags name none (B210).
func (o *options) housed() error {
	p, err := places()
	if err != nil || o.dir != "" && o.control != "" {
		return err
	}
	ours := p.Connector()
	if err := place.Private(ours, os.Getuid()); err != nil {
		return err
	}
	if o.dir == "" {
		o.dir = filepath.Join(ours, "agents")
	}
	if o.control == "" {
		o.control = filepath.Join(ours, "control", "s")
	}
	return nil
}

func (o options) verifier(ctx context.Context) (*credential.Verifier, error) {
	var ca []byte
	if o.ca != "" {
		var err error
		if ca, err = os.ReadFile(o.ca); err != nil {
			return nil, fmt.Errorf("read --credential-ca: %w", err)
		}
	}
	client, err := issuer.Client(ca)
	if err != nil {
		return nil, fmt.Errorf("read --credential-ca %s: %w", o.ca, err)
	}
	return credential.Discover(ctx, client, o.issuer, o.audience)
}

// ceilingNow reads the operator's ceiling anew (B87). One that is named must be there.
func (o options) ceilingNow() (policy.Ceiling, error) {
	file := o.ceiling
	if file == "" {
		file = place.SystemCeiling()
	} else if _, err := os.Stat(file); err != nil {
		return policy.Ceiling{}, fmt.Errorf("read the ceiling: %w", err)
	}
	c, err := config.LoadCeiling(file)
	if err != nil {
		return policy.Ceiling{}, err
	}
	return boxlink.CeilingOf(c), nil
}

// run attaches one agent, and changes what it may reach on SIGHUP.
func (o options) run(ctx context.Context, c *connector.Connector, again <-chan os.Signal, stderr io.Writer) error {
	if o.tcp != "" {
		at, err := netip.ParseAddrPort(o.tcp)
		if err != nil {
			return fmt.Errorf("read --insecure-tcp-listener: %w", err)
		}
		if o.socket, err = connector.OnTCP(at); err != nil {
			return err
		}
	}
	a, err := o.attach(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprint(stderr, a.Describe())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.lost:
			return nil // with the reason, by who called us
		case <-c.Gone(a.Agent):
			return errors.New("the box has ended: see the records for why")
		case <-again:
			if next, err := o.attach(ctx, c); err != nil {
				fmt.Fprintf(stderr, "skep-box: what was decided by stays: %v\n", err)
			} else {
				fmt.Fprint(stderr, next.Describe())
			}
		}
	}
}

// life is what the flags say about it.
func (o options) life() connector.Life {
	l := connector.Life{Generation: o.generation}
	if o.slice >= 0 {
		n := uint32(o.slice)
		l.Slice = &n
	}
	return l
}

func (o options) attach(ctx context.Context, c *connector.Connector) (connector.Attached, error) {
	if len(o.allow) > 0 {
		b, faults := bundle.Short(o.allow)
		if faults != nil {
			return connector.Attached{}, faults.Err()
		}
		return c.AttachAt(ctx, b, sha256.Sum256([]byte(strings.Join(o.allow, "\n"))), o.socket, o.life())
	}
	src, err := os.ReadFile(o.bundle)
	if err != nil {
		return connector.Attached{}, fmt.Errorf("read the bundle: %w", err)
	}
	b, faults := bundle.Parse(o.bundle, src)
	if faults != nil {
		return connector.Attached{}, faults.Err()
	}
	if b.Serves == nil && o.guest != "" {
		return connector.Attached{}, errors.New("--agent-ingress-socket is there, and the bundle serves nothing: remove it, or add serves: {name, port}")
	}
	return c.AttachAt(ctx, b, sha256.Sum256(src), o.socket, o.life())
}

// serve answers the connector API until the end.
func (o options) serve(ctx context.Context, c *connector.Connector, stderr io.Writer) error {
	control, err := connector.Listen(o.control, connector.Ours)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(o.control) }()
	l, err := net.FileListener(control)
	_ = control.Close()
	if err != nil {
		return fmt.Errorf("serve the control socket: %w", err)
	}
	if err := connector.Directory(o.dir, connector.Ours); err != nil {
		return err
	}
	if err := connector.Sweep(o.dir); err != nil {
		return err
	}
	s := c.Server()
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(l) }()
	fmt.Fprintf(stderr, "listening for the platform at %s\n", o.control)
	select {
	case err = <-failed:
	case <-o.lost:
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.Shutdown(last); err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("close the control socket: %w", err)
	}
	return err
}
