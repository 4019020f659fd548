package reading

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/profile"
)

// httpsPort is what a destination without a port means, as in a rule (B86); httpPort of
// a name that Skep answers itself.
const (
	httpsPort = 443
	httpPort  = 80
)

// would says what a cell's rules say of a destination, whether or not it was ever tried:
// the decision that its box would make, by the same function, under the ceiling of now.
func (g *Reading) would(r cells.Record, destination string) (*connect.Response[skepv1.ExplainResponse], error) {
	if r.Guest != nil {
		return nil, invalid(fmt.Errorf("cell %s is run by another runtime: `skep-box explain --bundle FILE` says what its bundle allows", r.ID))
	}
	q, err := destinationOf(r.ID, destination)
	if err != nil {
		return nil, invalid(err)
	}
	p, faults := profile.ParseAt(r.ProfileName, profile.Place{Dir: "/"}, []byte(r.Profile))
	if faults != nil {
		return nil, connect.NewError(connect.CodeDataLoss, fmt.Errorf("read the profile of cell %s: %w", r.ID, faults))
	}
	ceiling, err := g.Ceiling()
	if err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	ceiling.Own = g.Own()
	rules := boxlink.PolicyOf(p, ceiling)
	v := policy.Given(q, rules, policy.Decide(q, rules))
	host := q.Name
	if host == "" {
		host = q.Addr.String()
	}
	out := &skepv1.ExplainResponse{Decision: "deny", Rule: ruleText(p, v), AllowWith: v.AllowWith}
	what := "would be refused"
	if v.Decision == flow.Allow {
		out.Decision, what = "allow", "would be allowed"
	}
	out.What = fmt.Sprintf("%s %s", net.JoinHostPort(host, strconv.Itoa(int(q.Port))), what)
	switch {
	case v.Reason != flow.None:
		out.Why = v.Reason.Token() + ": " + v.Reason.Sentence()
	case q.Name != "" && v.Rule != "model" && policy.Resolve(q, rules) == nil:
		out.Why = "a rule allows it; the addresses that it resolves to are judged when it is tried"
	default:
		out.Why = "a rule allows it"
	}
	return connect.NewResponse(out), nil
}

// ruleText is the rule that decided, as it stands in a profile: its line is that of the
// effective text, which nobody wrote.
func ruleText(p *profile.Profile, v flow.Verdict) string {
	if v.Rule == "model" {
		return "model: of " + p.File
	}
	for _, r := range p.Net {
		if v.Line > 0 && r.Line == v.Line {
			return fmt.Sprintf("%s of %s", r.Net, p.File)
		}
	}
	return v.Rule
}

// destinationOf reads NAME[:PORT], ADDRESS[:PORT] or [ADDRESS]:PORT as a cell's attempt.
func destinationOf(cell, text string) (flow.Request, error) {
	q := flow.Request{Cell: cell, Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Port: httpsPort, Count: 1}
	host, given := text, false
	if strings.Contains(text, "://") {
		return q, fmt.Errorf("%q is a URL: give its name alone, and a port if it is not %d", text, httpsPort)
	}
	if _, err := netip.ParseAddr(text); err != nil {
		if h, port, err := net.SplitHostPort(text); err == nil {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil || n == 0 {
				return q, fmt.Errorf("%q: a port is a number from 1 to 65535", text)
			}
			host, q.Port, given = h, uint16(n), true
		}
	}
	var err error
	if q.Name, q.Addr, err = name.HostOrAddr(host); err != nil {
		return q, fmt.Errorf("%q is no destination: %w; give a name or an address, and a port if it is not %d", text, err, httpsPort)
	}
	if !given && name.UnderAlt(q.Name) {
		q.Port = httpPort
	}
	return q, q.Check()
}
