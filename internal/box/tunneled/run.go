package tunneled

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/boundary/link"
	"skep.dev/skep/internal/box/listener"
	"skep.dev/skep/internal/box/served"
	"skep.dev/skep/internal/box/vault"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/sys"
)

// The descriptors that such a box is started with.
const (
	fdConnector = 3
	fdListener  = 4
	fdLifeline  = 5
	fdReverse   = 6 // of a cell that serves
	fdIngress   = 7
)

const (
	endWithin  = 8 * time.Second // its own end (B150)
	flushEvery = time.Second     // refusals that were counted
)

// Internet is a destination that has to be told how the host resolves names.
type Internet interface {
	boundary.Dest
	Set(resolvers []netip.AddrPort, hosts map[string][]netip.Addr)
}

// Config is what such a box is made of. The files are the box's to close.
type Config struct {
	Connector *os.File // stream socket: the link
	Listener  *os.File // a listening stream socket
	Reverse   *os.File // seqpacket socket: the link's Dialer; nil unless the cell serves
	Ingress   *os.File // a listening stream socket, for callers
	Inward    func(reach Reach) boundary.Dest
	Lifeline  *os.File // seqpacket socket: the values of secrets; nil in tests of boxes without
	Internet  Internet
	// Intercept has the internet's flows to bound names carried with these secrets (B123).
	Intercept func(*vault.Vault, *x509.CertPool, vault.Record)
	Confine   func() error // tests of one process have none
}

// Reach connects to a port of the agent's own loopback.
type Reach = func(ctx context.Context, port uint16) (net.Conn, error)

var errServes = errors.New("a cell that serves needs an ingress socket and a reverse channel, and no other has them")

var errFirst = errors.New("the connector's first message names no cell")

// Inherit takes the descriptors that this process was started with.
func Inherit() (c Config, err error) {
	// First of all: the runtime's own poller may sit at a number that nobody gave us.
	serves := sys.SocketAt(fdReverse) && sys.SocketAt(fdIngress)
	if c.Connector, err = sys.Inherited(fdConnector, "connector"); err != nil {
		return c, fmt.Errorf("%w: skep-box tunnel is started by skep-connector, never by hand", err)
	}
	c.Listener, err = sys.Inherited(fdListener, "listener")
	if err == nil {
		c.Lifeline, err = sys.Inherited(fdLifeline, "lifeline")
	}
	if err == nil && serves {
		c.Reverse, err = sys.Inherited(fdReverse, "reverse channel")
	}
	if err == nil && serves {
		c.Ingress, err = sys.Inherited(fdIngress, "ingress")
	}
	return c, err
}

// box is the boundary of one cell.
type box struct {
	conn     *link.Conn
	recorder *recorder
	gate     *boundary.Gate
	listener *listener.Listener
	internet Internet
	policy   policy.Policy // as it came, without the host's own addresses
	names    link.Names
	served   *served.Listener // nil unless the cell serves
	probe    *served.Prober
	secrets  *vault.Vault // nil where the cell has none
}

// Run confines the process, waits for its cell and serves it until the connector ends it.
func Run(ctx context.Context, c Config) error {
	defer func() { _ = c.Connector.Close() }()
	if c.Confine != nil {
		debug.SetMemoryLimit(boundary.BoxMemory / 2)
		if err := errors.Join(sys.LimitData(boundary.BoxMemory), c.Confine()); err != nil {
			return fmt.Errorf("confine the box: %w", err)
		}
	}
	from, err := net.FileListener(c.Listener)
	if err != nil {
		return fmt.Errorf("take the listener: %w", err)
	}
	_ = c.Listener.Close()
	defer func() { _ = from.Close() }()
	conn := link.New(c.Connector)
	var first link.Order
	if err := conn.Receive(&first); err != nil {
		return fmt.Errorf("wait for a cell: %w", err)
	}
	if first.Assign == nil {
		return errFirst
	}
	b := build(conn, c.Internet, *first.Assign)
	ingress, err := b.serves(c, first.Assign.Serves)
	if err != nil {
		return errors.Join(b.installed(err), err)
	}
	if ingress != nil {
		defer func() { _ = ingress.Close() }()
	}
	err = b.open(c, *first.Assign)
	defer func() { b.secrets.Close() }()
	if err == nil {
		err = b.install(first.Assign.Policy, first.Assign.Names)
	}
	if err := b.installed(err); err != nil {
		return err
	}
	return b.serve(ctx, c, from, ingress)
}

func build(conn *link.Conn, internet Internet, a link.Assign) *box {
	b := &box{conn: conn, recorder: newRecorder(conn), internet: internet}
	flows := boundary.OpenFlows
	if a.Flows > 0 {
		flows = min(a.Flows, flows)
	}
	b.gate = &boundary.Gate{
		Identity: boundary.Identity{Cell: a.Cell, Agent: a.Agent, Generation: a.Generation},
		Recorder: b.recorder, Refusals: boundary.NewRefusals(b.recorder, time.Now), Internet: internet, Flows: flows, Idle: a.Idle, Now: time.Now,
	}
	b.listener = &listener.Listener{Gate: b.gate, UDP: a.UDP, Head: min(a.Head, listener.HeadTime)}
	return b
}

// install makes p the policy, with the host's own addresses as they are now (B105), and
// asks it for what nobody may reach (B163). With an error all stays as it was.
func (b *box) install(p policy.Policy, n link.Names) error {
	whole := p
	whole.Ceiling.Own = n.Own
	q := flow.Request{Cell: b.gate.Identity.Cell, Direction: flow.Out, Wire: flow.H1, Transport: flow.TCP, Name: name.Nobody, Port: 80, Count: 1}
	if v := policy.Decide(q, whole); v.Allowed() {
		return fmt.Errorf("the policy allows %s", q.Destination())
	}
	if err := b.gate.Install(whole); err != nil {
		return fmt.Errorf("install the policy: %w", err)
	}
	b.policy, b.names = p, n
	b.internet.Set(n.Resolvers, n.Hosts)
	return nil
}

// installed tells the connector, and returns the fault.
func (b *box) installed(fault error) error {
	word := link.Installed{Version: b.policy.Version}
	if fault != nil {
		word.Fault = fault.Error()
	}
	return errors.Join(fault, b.conn.Send(link.Word{Installed: &word}))
}

// serve runs until the connector ends it, or is gone. Then: no new flows, end the old
// ones, record the rest.
func (b *box) serve(ctx context.Context, c Config, from, ingress net.Listener) error {
	connector := c.Connector
	flows, endFlows := context.WithCancel(ctx)
	defer endFlows()
	failed := make(chan error, 6)
	if b.secrets != nil {
		go func() { failed <- b.refill(c.Lifeline) }()
	}
	var serving sync.WaitGroup
	serving.Go(func() { failed <- b.listener.Serve(flows, from) })
	if ingress != nil {
		serving.Go(func() { failed <- b.served.Serve(flows, ingress) })
		go b.probe.Probe(flows)
	}
	go func() { failed <- b.recorder.run() }()
	go b.flush(flows)
	orders := make(chan error, 1)
	go func() { orders <- b.follow(connector) }()

	var err error
	ended := false
	select {
	case err = <-orders:
		ended = err == nil
	case err = <-failed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = from.Close()
	if ingress != nil {
		b.probe.Withdraw() // before anything of it ends (B162)
		_ = ingress.Close()
	}
	endFlows()
	if !ended {
		b.recorder.giveUp() // nobody is there to write
	} else {
		go func() { // the answers to the last records
			_ = b.follow(connector)
			b.recorder.giveUp()
		}()
	}
	late := time.AfterFunc(endWithin, b.recorder.giveUp)
	defer late.Stop()
	serving.Wait()
	b.gate.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	err = errors.Join(err, b.gate.Refusals.Flush(last, true))
	b.recorder.giveUp()
	if ended {
		err = errors.Join(err, b.conn.Send(link.Word{Done: true}))
	}
	return err
}

// flush writes refusals that were counted, once their window is over.
func (b *box) flush(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = b.gate.Refusals.Flush(ctx, false) // what could not be written waits
		case <-b.gate.Refusals.Urgent():
			_ = b.gate.Refusals.Flush(ctx, false)
		case <-ctx.Done():
			return
		}
	}
}

// follow does what the connector says: nil is the order to end.
func (b *box) follow(connector *os.File) error {
	for {
		var o link.Order
		if err := b.conn.Receive(&o); err != nil {
			return fmt.Errorf("the connector %s is gone: %w", connector.Name(), err)
		}
		var err error
		switch {
		case o.Wrote != nil:
			b.recorder.wrote(*o.Wrote)
		case o.Policy != nil && !b.bound(*o.Policy):
			_ = b.installed(errOtherSecrets)
		case o.Policy != nil:
			_ = b.installed(b.install(*o.Policy, b.names)) // the connector is told; an invalid one changes nothing (B160)
		case o.Names != nil:
			_ = b.install(b.policy, *o.Names) // a policy that was valid with the old addresses is with the new ones
		case o.Ask:
			err = b.conn.Send(link.Word{Status: &link.Status{Flows: b.gate.Open(), Denials: b.recorder.denied.Load(), Advertised: b.probe.Advertised()}})
		case o.End:
			return nil
		default:
			err = errors.New("the connector's message says nothing")
		}
		if err != nil {
			return err
		}
	}
}
