package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/name"
)

// Bounds of asking (B140, B150).
const (
	MaxHold    = limit.MaxHold
	MaxAnswers = 256
)

// Answer is what a person said about one destination (B143). It is no rule: it turns an
// ask into an allow or a denial, and nothing else.
type Answer struct {
	ID        string // of the card
	Name      string // or Addr, as in a Request
	Addr      netip.Addr
	Port      uint16
	Transport flow.Transport

	// Drafted says that the cell asked for it by itself (B232): it stands where no rule
	// matches, also where nobody would be asked.
	Drafted bool
	Allow   bool
	Once    bool // for one flow
	Used    bool // of once: which has been, and the answer stands for it alone
}

// IsOnce tells whether a rule of a verdict is an answer for one flow.
func (p Policy) IsOnce(rule string) bool {
	return slices.ContainsFunc(p.Answers, func(a Answer) bool { return a.ID == rule && a.Once && !a.Used })
}

// OnceAnswers are those by which one connect may open now. The early gate lets one pass.
func OnceAnswers(p Policy) (out []Answer) {
	for _, a := range p.Answers {
		q := flow.Request{Cell: "-", Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Name: a.Name, Addr: a.Addr, Port: a.Port, Count: 1}
		if p.IsOnce(a.ID) && a.Transport == flow.TCP && Decide(q, p).Rule == a.ID {
			out = append(out, a)
		}
	}
	return out
}

// Without is the policy once an answer for one flow has been taken by one.
func (p Policy) Without(rule string) Policy {
	p.Answers = slices.Clone(p.Answers)
	for i := range p.Answers {
		p.Answers[i].Used = p.Answers[i].Used || p.Answers[i].Once && p.Answers[i].ID == rule
	}
	return p
}

// waits reports whether a flow is neither let through nor refused at once (B140). The
// kernel holds a connect; a datagram has to reach the box, which then carries none of it.
func waits(v flow.Verdict) bool { return v.Decision == flow.Ask && v.Hold > 0 }

func checkAnswers(answers []Answer) error {
	if len(answers) > MaxAnswers {
		return fmt.Errorf("policy has %d answers, more than %d", len(answers), MaxAnswers)
	}
	for _, a := range answers {
		plain, err := name.Host(a.Name)
		switch {
		case a.ID == "" || a.Port == 0 || (a.Name == "") == !a.Addr.IsValid():
			return fmt.Errorf("answer %q names no destination", a.ID)
		case a.Name != "" && (err != nil || plain != a.Name), a.Addr.Is4In6(), a.Addr.Zone() != "":
			return fmt.Errorf("answer %q: its destination is not in its normal form", a.ID)
		}
	}
	return nil
}

func (a Answer) about(q flow.Request) bool {
	return a.Name == q.Name && a.Addr == q.Addr && a.Port == q.Port && a.Transport == q.Transport
}

// unlistedDemand is what is asked of a flow that no rule matches: a person, and what is
// the default of its kind.
func unlistedDemand(q flow.Request) demand {
	r := Rule{Name: q.Name, IP: q.Addr}
	d := r.demands()
	d.ask = true
	return d
}

// drafted reports whether a person has said yes to a draft of just this.
func (d *decider) drafted() bool {
	return slices.ContainsFunc(d.p.Answers, func(a Answer) bool { return a.Drafted && a.Allow && !a.Used && a.about(d.q) })
}

// answer is the verdict about a flow of which a person is asked: what the person said,
// the last of several, or the question.
func (d *decider) answer(mine judged) (flow.Verdict, demand) {
	v := flow.Verdict{Decision: flow.Ask, Hold: mine.demand.hold, Reason: flow.ApprovalNeeded, Rule: mine.rule.ID, Line: mine.rule.Line, AllowWith: allowLine(d.q)}
	for _, a := range d.p.Answers {
		switch {
		case !a.about(d.q) || a.Used:
		case a.Allow:
			v = flow.Verdict{Decision: flow.Allow, Rule: a.ID, Line: mine.rule.Line}
		default:
			v = flow.Verdict{Reason: flow.ApprovalDenied, Rule: a.ID, Line: mine.rule.Line, AllowWith: allowLine(d.q)}
		}
	}
	if v.Allowed() {
		return v, mine.demand
	}
	return v, demand{}
}

// Stands reports whether a flow that is open under a rule, or under an answer, may go on
// under a policy (B161): what was said once stands for the flow that took it.
func Stands(q flow.Request, p Policy, rule string) bool {
	for _, a := range p.Answers {
		if a.ID == rule && a.Used {
			a.Used = false
			p.Answers = []Answer{a}
			break
		}
	}
	return Decide(q, p).Allowed()
}
