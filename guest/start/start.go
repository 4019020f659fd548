// Package start is skep-init from its command line to its exit.
//
// Its laws:
//   - The order is fixed: resolver, trust, interfaces, boundary, device and routes, drop, ingress, agent
//     (guest.md, G20). A failure ends the start.
//   - It decides nothing about a flow and is trusted by nobody.
package start

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"skep.dev/skep/guest/agent"
	"skep.dev/skep/guest/channel"
	"skep.dev/skep/guest/explicit"
	"skep.dev/skep/guest/ingress"
	"skep.dev/skep/guest/netstack"
	"skep.dev/skep/guest/setup"
	dns "skep.dev/skep/internal/route"
)

// Main runs one command and says what to exit with.
func Main(args []string, out io.Writer) (int, error) {
	if len(args) == 0 {
		return agent.SetupFailed, &UsageError{fmt.Errorf("there is no command")}
	}
	inside := setup.Inside()
	switch args[0] {
	case "copy":
		if len(args) != 2 {
			return agent.SetupFailed, &UsageError{fmt.Errorf("copy takes one destination")}
		}
		return done(Copy(args[1]))
	case "check":
		s, err := parse(args[1:], false)
		if err != nil {
			return agent.SetupFailed, err
		}
		if s.statement {
			_, err := io.WriteString(out, statement(s))
			return 0, err
		}
		if s.createNamespaces && !inside {
			return again()
		}
		return check(s, inside, out)
	case "run":
		s, err := parse(args[1:], true)
		if err != nil {
			return agent.SetupFailed, err
		}
		if s.createNamespaces && !inside {
			return again()
		}
		return run(s, inside)
	}
	return agent.SetupFailed, &UsageError{fmt.Errorf("there is no command %q", args[0])}
}

func done(err error) (int, error) {
	if err != nil {
		return agent.SetupFailed, err
	}
	return 0, nil
}

// again starts this program inside namespaces of its own and follows it (G30).
func again() (int, error) {
	attr, env, err := setup.Namespaces()
	if err != nil {
		return agent.SetupFailed, err
	}
	self, err := os.Executable()
	if err != nil {
		return agent.SetupFailed, fmt.Errorf("find this program: %w", err)
	}
	status, err := agent.Run(agent.Command{Args: append([]string{self}, os.Args[1:]...), Env: env, Attr: attr, Relay: true}, nil, nil)
	if err != nil {
		return agent.SetupFailed, setup.NamespaceFault(err)
	}
	return status, nil
}

// run is the order of G20.
func run(s settings, inside bool) (int, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: s.log}))
	if err := setup.ResolvConf(inside); err != nil {
		return agent.SetupFailed, err
	}
	trust, err := setup.Trust(s.caBundle)
	if err != nil {
		return agent.SetupFailed, err
	}
	if err := setup.NoForeign(); err != nil {
		return agent.SetupFailed, err
	}
	if err := answers(s.boundary, s.ready); err != nil {
		return agent.SetupFailed, err
	}
	env := os.Environ()
	closeRoute, variables, err := route(s)
	if err != nil {
		return agent.SetupFailed, err
	}
	defer closeRoute()
	env = append(env, variables...)
	end := make(chan error, 1)
	if err := setup.Watch(func(err error) { end <- err }); err != nil {
		return agent.SetupFailed, err
	}
	if err := setup.Drop(); err != nil {
		return agent.SetupFailed, err
	}
	if s.ingress != "" {
		l, err := ingress.Listen(s.ingress)
		if err != nil {
			return agent.SetupFailed, &setup.Fault{Sentence: "the ingress socket could not be opened", Err: err}
		}
		go (&ingress.Server{Port: s.ingressPort, Form: s.ingressForm}).Serve(l)
	}
	log.Info("the agent starts", "boundary", s.boundary.String(), "explicit", s.explicit, "udp", s.udp, "generation", s.generation, "slice", s.slice)
	command := agent.Command{Args: s.command, Env: append(env, trust...), User: s.user, Grace: s.grace}
	return agent.Run(command, func() error {
		if s.user == nil {
			return nil
		}
		return setup.KeepKill()
	}, end)
}

// route makes the way to the boundary, and says what the agent has to be told of it.
func route(s settings) (closeRoute func(), variables []string, err error) {
	if s.explicit {
		if err := setup.Loopback(); err != nil {
			return nil, nil, err
		}
		l, err := explicit.Listen()
		if err != nil {
			return nil, nil, err
		}
		go explicit.Serve(l, s.boundary)
		return func() { _ = l.Close() }, explicit.Variables(l), nil
	}
	tun, ipv6, err := setup.OpenTun()
	if err != nil {
		return nil, nil, err
	}
	names, err := table(s, ipv6)
	if err != nil {
		return nil, nil, err
	}
	resolver := &dns.Resolver{Table: names, Gate: everybody{}, Rate: dns.NewBucket(dns.DNSQueries, time.Now), IPv6: ipv6}
	stack, err := netstack.New(tun, s.boundary, resolver, s.udp)
	if err != nil {
		return nil, nil, err
	}
	return stack.Close, nil, nil
}

// table is where names get their addresses: a slice of the pools for a guest whose
// lineage is captured, all of them for one that is not (G81, G82). A generation that comes
// from a capture has lost the table, and may give no old address to another name (B57).
func table(s settings, ipv6 bool) (*dns.Table, error) {
	if s.slice < 0 {
		if s.generation > 0 {
			return nil, &setup.Fault{Sentence: fmt.Sprintf("generation %d has no table of the addresses that an earlier one gave out: give --pool-slice with a slice that this agent never had", s.generation)}
		}
		return dns.NewTable(dns.DNSNames), nil
	}
	t, err := dns.NewSlice(dns.DNSNames, s.slice)
	if err == nil && !t.IPv4() && !ipv6 {
		err = &setup.Fault{Sentence: fmt.Sprintf("pool slice %d has no IPv4 addresses and this kernel has no IPv6: use a slice below 64", s.slice)}
	}
	return t, err
}

// answers waits until a connection to the boundary is accepted; no byte is sent (G21).
func answers(b channel.Boundary, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := b.Dial(ctx)
		if err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return setup.Absent(b.String(), err)
		}
	}
}

// everybody is the early gate of a guest: there is none, the boundary decides each flow.
type everybody struct{}
