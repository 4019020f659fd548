// Package advice says what this host would make of a profile, and what it offers.
//
// Its law: it changes nothing.
package advice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/doctor"
	"skep.dev/skep/internal/daemon/selftest"
	"skep.dev/skep/internal/daemon/terms"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/profile"
)

// Advice answers the calls Check and Doctor.
type Advice struct {
	Driver interface {
		Features(ctx context.Context) (cell.Features, error)
	}
	Limits  cell.Enforced // that this host can hold
	Ceiling func() (policy.Ceiling, error)
	// Own are the host's addresses as the boxes have them (B105).
	Own func() []netip.Addr
	// Proved proves the walls (L10).
	Proved func() (selftest.Proof, error)
	// Settings judges the operator's files; nil judges none.
	Settings func() []doctor.Finding
}

// Check reads a profile and says what this host would make of it. The paths are
// judged by `skep check` itself, which may look at them.
func (a *Advice) Check(_ context.Context, q *connect.Request[skepv1.CheckRequest]) (*connect.Response[skepv1.CheckResponse], error) {
	p, faults := profile.ParseAt(q.Msg.ProfileName, profile.Place{Dir: q.Msg.ProfileDir, Home: q.Msg.Home}, q.Msg.Profile)
	out := &skepv1.CheckResponse{}
	for _, f := range faults {
		out.Faults = append(out.Faults, &skepv1.Fault{
			File: f.File, Line: int32(f.Line), Column: int32(f.Column), Text: f.Text, Message: f.Message, Fix: f.Fix,
		})
	}
	if faults != nil {
		return connect.NewResponse(out), nil
	}
	out.Digest, out.Effective = p.Digest(), p.Effective()
	unenforced, err := terms.Enforceable(p, a.Limits)
	if u, ok := errors.AsType[*terms.Unheld](err); ok {
		out.Faults = append(out.Faults, &skepv1.Fault{
			File: u.File, Line: int32(u.Line), Text: u.Key, Message: fmt.Sprintf("budget.%s cannot be enforced here: %s", u.Key, u.Why), Fix: u.Fix(),
		})
	} else if err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	for _, key := range unenforced {
		out.Notes = append(out.Notes, fmt.Sprintf("not enforced on this host: budget.%s", key))
	}
	ceiling, err := a.Ceiling()
	if err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	ceiling.Own = a.Own()
	out.Notes = append(out.Notes, unreachable(p, ceiling)...)
	if _, bounded := p.Budget.Disk.Value(); bounded {
		out.Notes = append(out.Notes, "budget.disk: no quota of this host's; what the cell holds is measured each second, and the cell is stopped when it is more")
	}
	return connect.NewResponse(out), nil
}

// unreachable tells which rules name addresses that no cell reaches all the same: by the
// decisions that a box makes, on each rule's first port.
func unreachable(p *profile.Profile, ceiling policy.Ceiling) (notes []string) {
	rules := boxlink.PolicyOf(p, ceiling)
	for _, r := range rules.Rules {
		q := flow.Request{
			Cell: "-", Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Name: r.Name, Addr: r.IP, Count: 1,
		}
		if len(r.Ports) == 0 || !r.IP.IsValid() && len(r.Resolve) == 0 {
			continue
		}
		q.Port = r.Ports[0].First
		if v := policy.Given(q, rules, policy.Decide(q, rules)); !v.Allowed() {
			notes = append(notes, fmt.Sprintf("net: %s is refused all the same, %s: %s; to allow it: %s",
				q.Destination(), v.Reason.Token(), v.Reason.Sentence(), v.AllowWith))
		}
	}
	return notes
}

// Doctor looks at the host.
func (a *Advice) Doctor(ctx context.Context, _ *connect.Request[skepv1.DoctorRequest]) (*connect.Response[skepv1.DoctorResponse], error) {
	features, err := a.Driver.Features(ctx)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	found := slices.Concat(doctor.Findings(doctor.Look(), features), selftest.Findings(a.Proved()))
	if a.Settings != nil {
		found = append(found, a.Settings()...)
	}
	out := &skepv1.DoctorResponse{}
	for _, f := range found {
		out.Findings = append(out.Findings, &skepv1.Finding{Name: f.Name, Status: string(f.Status), Detail: f.Detail, Fix: f.Fix})
	}
	return connect.NewResponse(out), nil
}
