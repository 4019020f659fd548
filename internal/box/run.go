package box

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/box/datagrams"
	"skep.dev/skep/internal/box/forwarded"
	"skep.dev/skep/internal/box/pause"
	"skep.dev/skep/internal/box/vault"
	"skep.dev/skep/internal/box/way"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/sys"
)

// Internet is a destination that has to be told how the host resolves names.
type Internet interface {
	boundary.Dest
	Set(resolvers []netip.AddrPort, hosts map[string][]netip.Addr)
}

// Config is what a box is made of. The files are the box's to close.
type Config struct {
	Daemon *os.File // stream socket: HTTP/2 to skepd
	Warden *os.File // seqpacket socket: the cell's sockets, then the early gate
	Model  *os.File // stream socket: HTTP/2 to skep-model; nil without one
	// Lifeline is a seqpacket socket: skepd's orders when a program is replaced (L20a).
	Lifeline *os.File

	Internet Internet
	Gateway  func(use func() (*h2.Conn, func())) boundary.Dest // makes the destination behind Model
	Desk     func(*boundary.Denials, *People) boundary.Dest    // where a cell reads what it was refused
	Inward   func(Reach) boundary.Dest                         // makes the destination that is the agent itself
	Confine  func() error                                      // Confine; tests of one process have none
	// Intercept has the internet's flows to bound names carried with these secrets (B123).
	Intercept func(*vault.Vault, *x509.CertPool, vault.Record)
}

// Reach connects to a port of the cell's own loopback.
type Reach = func(ctx context.Context, port uint16) (net.Conn, error)

// endWithin bounds the end of a cell, so that the daemon need not kill the box (B150).
const endWithin = 8 * time.Second

// doorBy bounds one change of the kernel's door.
const doorBy = time.Second

// probeBy bounds the first request; the warden answers it once the cell's tree stands.
const probeBy = 10 * time.Second

// Run confines the process, waits for a cell and serves it until it ends. An
// error says why the cell has no boundary any more.
func Run(ctx context.Context, c Config) error {
	if c.Confine != nil {
		if err := limitMemory(); err != nil {
			return err
		}
		if err := c.Confine(); err != nil {
			return fmt.Errorf("confine the box: %w", err)
		}
	}
	if err := warm(ctx); err != nil {
		return err
	}
	daemon, err := over(c.Daemon)
	if err != nil {
		return err
	}
	link := newLink(daemon)
	defer func() { link.daemon.Close(); _ = c.Lifeline.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	assignment, err := link.watch(ctx)
	switch {
	case errors.Is(err, errNotUnderstood):
		return errors.Join(err, link.ready(ctx, err)) // there is a daemon that should know why
	case err != nil:
		return err
	}
	secrets, err := open(ctx, c.Lifeline, link, assignment)
	defer func() { secrets.Close() }() // there is one to close beside an error, too
	var b *box
	if err == nil {
		b, err = build(ctx, c, link, assignment, secrets)
	}
	if err == nil {
		defer b.sockets.close()
		err = b.probe(ctx)
	}
	if err := errors.Join(err, link.ready(ctx, err)); err != nil {
		return fmt.Errorf("make the boundary of cell %s: %w", assignment.cell, err)
	}
	return b.serve(ctx)
}

// limitMemory makes the kernel end a box that wants more memory than it may have
// (B150). Long before, the collector works harder. What the kernel holds for its flows
// is not in it: a busy box must not die of full sockets and pipes, which have limits
// of their own.
func limitMemory() error {
	debug.SetMemoryLimit(boundary.BoxMemory / 2)
	return sys.LimitData(boundary.BoxMemory)
}

// box is the boundary of one cell.
type box struct {
	link     *link
	lifeline *os.File
	model    *way.Way // to the gateway; nil without one
	recorder *recorder
	kernel   *kernel
	early    *early
	server   *server
	sockets  *sockets
	gate     *boundary.Gate
	internet Internet
	forwards *forwarded.Sessions

	installing sync.Mutex
	policy     policy.Policy // as skepd sent it, without what the box adds
	names      names

	admission *admission
	people    *People
	denials   *boundary.Denials // that the cell is shown
	secrets   *vault.Vault      // nil where the cell has none
	door      doorway

	handing       bool          // stopped for another box; the lifeline's own
	cell, answers *pause.Pause  // what reads the cell's sockets, and the warden's
	told          chan struct{} // closed when skepd has heard that another box serves
	parted        chan struct{} // closed after that, when the last flow of this one is over
	failed        chan error    // what runs for the whole life and has ended
}

// build makes the gate of the assignment and what stands around it, and fills
// the kernel's sets. Nothing of the cell is served yet.
func build(ctx context.Context, c Config, l *link, a assignment, secrets *vault.Vault) (*box, error) {
	if a.policy == nil {
		return nil, errNoPolicy
	}
	s, message, err := receive(c.Warden)
	if err != nil {
		return nil, err
	}
	b := &box{
		link: l, lifeline: c.Lifeline, recorder: newRecorder(l), kernel: newKernel(c.Warden), sockets: s, internet: c.Internet, policy: a.policy.Policy, secrets: secrets,
		failed: make(chan error, 5), told: make(chan struct{}), parted: make(chan struct{}), cell: pause.New(), answers: pause.New(),
		people: &People{link: l}, denials: &boundary.Denials{},
	}
	if s.warden != nil {
		b.kernel.sock = s.warden
	}
	b.gate = &boundary.Gate{
		Identity: boundary.Identity{Cell: a.cell, Agent: a.agent, Generation: a.generation},
		Recorder: b.recorder, Refusals: boundary.NewRefusals(b.recorder, time.Now), Internet: c.Internet, Flows: boundary.OpenFlows, Now: time.Now,
		Denials: b.denials,
	}
	if c.Desk != nil {
		b.gate.Desk = c.Desk(b.gate.Denials, b.people)
	}
	if c.Inward != nil {
		b.gate.Inward = c.Inward(b.kernel.reach)
	}
	b.forwards = &forwarded.Sessions{Gate: b.gate, Pause: b.cell, Reopen: b.reopen}
	b.limit(ctx, a.limits)
	if err := b.install(b.policy, a.names); err != nil {
		s.close()
		return nil, err
	}
	if c.Model != nil && a.policy.Model {
		gateway, err := over(c.Model)
		if err != nil {
			s.close()
			return nil, err
		}
		b.model = way.New(gateway)
		b.gate.Model = c.Gateway(b.model.Use)
	}
	table := route.NewTable(route.DNSNames)
	carried := []flow.Transport{flow.TCP}
	if len(s.udp) > 0 {
		carried = append(carried, flow.UDP)
	}
	admit := newAdmission(b.kernel, b.gate.Policy, carried...)
	b.admission, b.gate.Back = admit, admit.back
	b.server = &server{sockets: s, gate: b.gate, table: table, pause: b.cell,
		udp: &datagrams.Server{Gate: b.gate, Table: table, Kernel: conntrack{b.kernel}},
		dns: &route.Resolver{Table: table, Gate: admit, Rate: route.NewBucket(route.DNSQueries, time.Now), IPv6: s.ipv6}}
	l.numbers = b.server.numbers
	b.early = newEarly(s.log, b.kernel, b.gate, table)
	if s.warden != nil {
		if err := b.inherit(c.Warden, message); err != nil {
			s.close()
			return nil, err
		}
	}
	if err := b.intercept(c.Intercept, a.roots); err != nil {
		s.close()
		return nil, err
	}
	go func() {
		if err := b.kernel.run(b.answers); err != nil {
			b.failed <- err
		}
	}()
	b.recorder.begin()
	if s.warden != nil {
		admit.follow(ctx)
	} else if err := admit.literals(ctx); err != nil {
		s.close()
		return nil, err
	}
	return b, nil
}

// limit applies the assignment's limits, which only lower ours (B150), and shuts the
// kernel's door while they let nothing in.
func (b *box) limit(ctx context.Context, l limits) {
	if n := int(l.openFlows); n > 0 {
		b.gate.Flows = min(n, boundary.OpenFlows)
	}
	if l.newFlows > 0 {
		b.gate.Rate = route.NewBucket(int(l.newFlows), time.Now)
	}
	b.gate.Idle = time.Duration(l.idleSeconds) * time.Second
	if l.leased {
		b.gate.Bytes = boundary.NewBytes(ctx, b.link)
	}
	b.door.kernel = b.kernel
	b.gate.Door = boundary.NewDoor(func(shut bool) error {
		ctx, cancel := context.WithTimeout(ctx, doorBy)
		defer cancel()
		return b.door.set(ctx, shut)
	}, b.gate.Full)
}

// install makes a policy the gate's, with the host's own addresses as they are now (B105)
// and the ports that the cell's owner forwards (B178), and tells the destination about
// names. Where both are there already, it is for installing held.
func (b *box) install(assigned policy.Policy, n names) error {
	p := assigned
	p.Ceiling.Own = n.own
	p.Ingress = append(slices.Clip(p.Ingress), b.forwards.Open()...)
	if err := b.gate.Install(p); err != nil {
		return fmt.Errorf("install the policy: %w", err)
	}
	b.policy, b.names = assigned, n
	b.internet.Set(n.resolvers, n.hosts)
	return nil
}

// probe is the request of B163: one name through DNS, the kernel's sets and the
// decision, under the installed policy. Once it is answered, the warden may start
// the agent.
func (b *box) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeBy)
	defer cancel()
	query, err := probeQuery()
	if err != nil {
		return err
	}
	// A warden that still builds may take longer than an agent's query may wait
	// (B14): the probe asks again, the agent does not run yet.
	var m dnsmessage.Message
	for {
		if err := m.Unpack(b.server.dns.Answer(ctx, query)); err != nil {
			return fmt.Errorf("the probe of virtual DNS: %w", err)
		}
		if m.RCode != dnsmessage.RCodeServerFailure || ctx.Err() != nil {
			break
		}
	}
	if m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 1 {
		return fmt.Errorf("the probe of virtual DNS got %s and %d answers", m.RCode, len(m.Answers))
	}
	if _, err := b.kernel.refused(ctx); err != nil {
		return err
	}
	if slices.ContainsFunc(b.policy.Rules, func(r policy.Rule) bool { return r.UDP }) && len(b.sockets.udp) > 0 {
		if err := (conntrack{b.kernel}).probe(ctx); err != nil {
			return err
		}
	}
	q := flow.Request{Cell: b.gate.Identity.Cell, Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Name: name.Nobody, Port: 80, Count: 1}
	if v := policy.Decide(q, b.gate.Policy()); v.Allowed() {
		return fmt.Errorf("the probe of the policy allowed %s", q.Destination())
	}
	return b.kernel.ready(ctx)
}

// serve runs until the daemon ends the cell, or something without which there is
// no boundary has ended. Then: no new flows, end the old ones, record the rest.
func (b *box) serve(ctx context.Context) error {
	flows, endFlows := context.WithCancel(ctx)
	defer endFlows()
	logRead := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := b.server.run(flows); err != nil {
			b.failed <- err
		} else if b.cell.Over() {
			b.forwards.Wait()
			select {
			case <-b.told: // a box without flows would end before its answer is sent
				close(b.parted)
			case <-flows.Done():
			}
		}
	})
	ended.Go(func() {
		defer close(logRead)
		if err := b.early.read(b.cell); err != nil {
			b.failed <- err
		}
	})
	go b.early.watch(flows)
	followed := make(chan error, 1)
	go func() { followed <- b.link.follow(b.update, func(p given) error { return b.swap(flows, p) }) }()
	go func() { b.failed <- b.obey(ctx, flows) }()

	var err error
	select {
	case err = <-followed:
	case err = <-b.failed:
	case <-b.parted:
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.sockets.closeListeners()
	endFlows()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	defer context.AfterFunc(last, b.recorder.giveUp)()
	rest := b.early.finish(last, logRead)
	ended.Wait()
	b.forwards.Wait()
	// Flows that ended just now may have left refusals, too.
	rest = errors.Join(rest, b.gate.Refusals.Flush(last, true))
	if rest == nil && (err == nil || errors.Is(err, ErrWardenGone)) {
		rest = b.link.done(last, b.gate.Bytes.Spent())
	}
	return errors.Join(err, rest)
}

// update takes new resolvers, hosts and own addresses. A policy that was valid
// with the old addresses is with the new ones; were it not, the old one stays.
func (b *box) update(n names) {
	b.installing.Lock()
	defer b.installing.Unlock()
	_ = b.install(b.policy, n)
}

// reopen has the gate decide by the ports that are forwarded now.
func (b *box) reopen() error {
	b.installing.Lock()
	defer b.installing.Unlock()
	return b.install(b.policy, b.names)
}

// swapBy bounds what the kernel may take to follow a policy; what it has not done by then
// the gate refuses, or the next question of the name opens.
const swapBy = time.Second

// swap makes p the policy from now on: first the gate's, which decides every flow, then
// the kernel's sets (B160). One that is not valid changes nothing, and ends the box:
// skepd sends none.
func (b *box) swap(ctx context.Context, p given) error {
	if !b.secrets.Has(p.secrets) {
		return errOtherSecrets
	}
	b.installing.Lock()
	err := b.install(p.Policy, b.names)
	b.installing.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, swapBy)
	defer cancel()
	b.admission.follow(ctx)
	b.people.heard()
	return nil
}
