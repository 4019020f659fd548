package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/right/request"
)

// allowLine is the narrowest line under `net:` that would allow the request
// (B89). Every part is normalised, so it is safe to print and to paste.
func allowLine(q flow.Request) string {
	var fields []string
	if q.Name != "" {
		fields = append(fields, "name: "+q.Name)
	} else {
		fields = append(fields, fmt.Sprintf("ip: %q", q.Addr.String()))
	}
	// 443 is what a rule without ports means (B86).
	if q.Port != 443 {
		fields = append(fields, fmt.Sprintf("ports: [%d]", q.Port))
	}
	if q.Transport == flow.UDP {
		fields = append(fields, "transports: [udp]")
	}
	return "- {" + strings.Join(fields, ", ") + "}"
}

// openLine is the line of the operator's ceiling that opens the floor for an address
// (B105): a profile never does.
func openLine(a netip.Addr, port uint16) string {
	return fmt.Sprintf("open: [{cidr: %q, ports: [%d]}] in the operator's ceiling.yaml, beside the profile's rule: a profile alone never reaches an address of the host itself",
		netip.PrefixFrom(a, a.BitLen()), port)
}

// requestLine says what to add to a rule for a request. What the agent sent is not
// repeated: methods and paths are no part of the record (B192).
func requestLine(q flow.Request, r *Rule, why flow.Reason) string {
	rule := "the rule " + r.ID
	if r.Line > 0 {
		rule = fmt.Sprintf("%s in line %d", rule, r.Line)
	}
	switch {
	case why == flow.MethodNotAllowed:
		return "its method among the methods of " + rule
	case why == flow.PathNotAllowed:
		return "its path among the paths of " + rule
	case request.KindOfPath(q.Inner.Path) == request.SlashedPath:
		return "encoded_slash: true in " + rule
	}
	return ""
}
