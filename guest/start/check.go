package start

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"skep.dev/skep/guest/agent"
	"skep.dev/skep/guest/explicit"
	"skep.dev/skep/guest/netstack"
	"skep.dev/skep/guest/setup"
	"skep.dev/skep/internal/name"
	dns "skep.dev/skep/internal/route"
)

// check tests the preconditions, one line each, and starts nothing (G4). With
// --create-namespaces it is called inside them.
func check(s settings, inside bool, out io.Writer) (int, error) {
	status := 0
	for _, step := range []struct {
		what string
		try  func() error
	}{
		{"resolver", func() error { return setup.TryResolvConf(inside) }},
		{"no way out but lo", setup.NoForeign},
		{"boundary", func() error { return answers(s.boundary, s.ready) }},
		{"tun device", func() error {
			if s.explicit {
				return nil // not needed
			}
			return setup.TryTun()
		}},
		{"reaper of orphans", agent.TryReaper},
	} {
		said := "ok"
		if err := step.try(); err != nil {
			status, said = agent.SetupFailed, sentence(err)
		}
		if _, err := fmt.Fprintf(out, "%s: %s\n", step.what, said); err != nil {
			return agent.SetupFailed, err
		}
	}
	return status, nil
}

func sentence(err error) string {
	var f *setup.Fault
	if errors.As(err, &f) {
		return f.Sentence
	}
	return err.Error()
}

// statement is the compatibility statement of the route that the flags choose (G56).
func statement(s settings) string {
	if s.explicit {
		return fmt.Sprintf(`route: explicit, CONNECT at HTTP_PROXY, HTTPS_PROXY and ALL_PROXY on 127.0.0.1; no SOCKS
transports: tcp; nothing else has a route
records: none, there is no resolver: the boundary resolves what is allowed
capacity: %s flows at once
a denial: the boundary's own answer, with Proxy-Status and Boundary-Reason; %s, plus the boundary's own time
`, thousands(explicit.MaxFlows), bounds)
	}
	udp := "udp is off: ICMP port unreachable"
	if s.udp {
		udp = fmt.Sprintf("udp by connect-udp, %d flows at once", netstack.MaxUDP)
	}
	pools := "100.64.0.0/10 and 100::/64"
	if s.slice >= 0 {
		pools = fmt.Sprintf("slice %d of 100.64.0.0/10 (64 slices) and of 100::/64 (%s)", s.slice, thousands(dns.Slices))
	}
	return fmt.Sprintf(`route: tun
transports: tcp; %s; ICMP echo and all else is not answered
records: A and AAAA for every valid name, one synthetic address each, TTL 3600; localhost is loopback; all other types empty; no forwarder
pools: %s; resolver %s and %s; nothing of 100.127.255.0/24 and 100::ffff:ffff:ffff:ff00/120 is handed out
capacity: %s names in each family, %d queries a second, %s attempts at once
reuse: no address serves a second name; the name that was used least recently goes first, one with an open flow stays
mtu: %d
a denial: a reset on the SYN (ECONNREFUSED), no byte readable; %s, plus the boundary's own time
`, udp, pools, name.Resolver4(), name.Resolver6(), thousands(dns.DNSNames), dns.DNSQueries, thousands(netstack.MaxAttempts), netstack.MTU, bounds)
}

// bounds of a denial on this route (G56).
const bounds = "within 100 ms over a Unix socket, 200 ms over vsock"

// thousands writes 65536 as 65,536.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
