package declared

import (
	"fmt"

	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/strict"
)

// bound tells whether a secret goes to each destination of the rule that speaks TLS.
func bound(rule *NetRule, d Defaults) bool {
	if d.Bound == nil || rule.Dest.Kind != right.Name {
		return false
	}
	for _, span := range rule.Ports {
		for port := uint32(span.First); port <= uint32(span.Last); port++ {
			if port != 80 && !d.Bound(rule.Dest.Name, uint16(port)) {
				return false
			}
		}
	}
	return true
}

// requests reads what a rule says about HTTP requests (B83, B84).
func requests(r *strict.Report, rule *NetRule, f map[string]*strict.Node, d Defaults) {
	for key, list := range map[string]*[]string{"methods": &rule.Methods, "paths": &rule.Paths} {
		v, ok := f[key]
		if !ok {
			continue
		}
		example := map[string]string{"methods": "[GET, POST]", "paths": `["/repos/*"]`}[key]
		for _, item := range r.Strs(v, key, example) {
			*list = append(*list, item.Text)
		}
		if len(*list) == 0 {
			continue // the fault is noted
		}
		switch {
		case rule.Transports&right.UDP != 0:
			r.Fault(v, key+" need HTTP, and a rule with transport udp carries datagrams", "write two rules")
		case rule.Inner == right.InnerOff || rule.Inner == right.InnerTLS:
			r.Fault(v, fmt.Sprintf("%s need requests that can be read, and inner: %s reads none", key, rule.Inner), "remove inner")
		case !rule.HTTP && !right.AllHTTP(rule.Ports) && !bound(rule, d):
			r.Fault(v, key+" need requests that can be read: plain HTTP, or TLS to one name to which a secret is bound on each port",
				"write ports: [80], or http: true for plain HTTP on other ports; for https without a secret remove "+key)
		}
	}
	if v, ok := f["encoded_slash"]; ok {
		rule.EncodedSlash, _ = r.Flag(v, "encoded_slash")
	}
	if v, ok := f["correlate"]; ok {
		rule.Correlate, _ = r.Flag(v, "correlate")
	}
}
