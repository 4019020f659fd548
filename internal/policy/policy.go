package policy

import (
	"errors"
	"fmt"
	"net/netip"

	"skep.dev/skep/internal/policy/address"
)

// MaxRules bounds the rules of one policy (B150).
const MaxRules = 1000

// Policy is what one cell may reach: a plain value, complete in itself. The zero
// Policy allows nothing. It is not changed after it was built.
type Policy struct {
	Version  string // named by every record that it decided
	Rules    []Rule
	Resolved []Range // resolved_addresses: never allows a literal (B85)
	Model    bool    // the cell has a model right (B70 row 1)
	Ceiling  Ceiling
	Ingress  []Ingress // where its agent is reached

	NoDesk      bool     // policy.skep.alt is not there for the cell (B230)
	AskUnlisted bool     // a person is asked about what no rule matches (B85)
	Answers     []Answer // what people said when they were asked (B143)
	Bound       []Bound  // where secrets go (B123)
}

// Ceiling is the operator's second policy (B87). The zero Ceiling limits nothing
// but keeps the floor.
type Ceiling struct {
	Limits   bool   // a rule of Allow must allow, too; false where the file has no net list
	Allow    []Rule // meaningful with Limits
	Resolved []Range
	Deny     []Rule       // beats every allow, for resolved addresses too
	Open     []Range      // opens the floor for these (B105)
	NoFloor  bool         // the floor is off: for conformance runs
	Mixed    bool         // `mixed: refuse`: deny when any resolved address was dropped (B102)
	Own      []netip.Addr // the host's own interface addresses, on the floor (B105)
	Proxy    *Proxy       // by which all egress goes; nil without one (B180)
	Roots    []byte       // PEM: who may vouch, beside the system's, for a destination with a secret (B126)
}

// Check reports the first fault of a policy that arrived from another program.
func (p Policy) Check() error {
	if n := len(p.Rules) + len(p.Ceiling.Allow) + len(p.Ceiling.Deny); n > MaxRules {
		return fmt.Errorf("policy has %d rules, more than %d", n, MaxRules)
	}
	for _, rules := range [][]Rule{p.Rules, p.Ceiling.Allow, p.Ceiling.Deny} {
		ids := map[string]bool{}
		for _, r := range rules {
			if err := r.Check(); err != nil {
				return err
			}
			if r.limits() && !p.reads(&r) {
				return fmt.Errorf("rule %q: methods and paths need requests that can be read: port 80, http, or a secret that is bound there", r.ID)
			}
			if ids[r.ID] {
				return fmt.Errorf("two rules have the id %q", r.ID)
			}
			ids[r.ID] = true
		}
	}
	if err := p.Ceiling.Proxy.Check(); err != nil {
		return err
	}
	if err := errors.Join(checkAnswers(p.Answers), checkIngress(p.Ingress)); err != nil {
		return err
	}
	if err := checkBound(p.Bound); err != nil {
		return err
	}
	t := address.New()
	for _, ranges := range [][]Range{p.Resolved, p.Ceiling.Resolved} {
		for _, g := range ranges {
			if _, ok := t.WithinSpecial(g.CIDR); !ok {
				return fmt.Errorf("resolved address range %s is not inside one special-purpose range", g.CIDR)
			}
		}
	}
	return nil
}
