package boxlink

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"

	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/config"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/right/declared"
	"skep.dev/skep/internal/secret/listed"
)

// PolicyOf is a profile's net rights under the operator's ceiling: what its box decides
// by, and what we answer by when somebody asks what it would decide.
func PolicyOf(p *profile.Profile, ceiling policy.Ceiling) policy.Policy {
	return policy.Policy{
		Rules: Rules(p.Net), Resolved: Ranges(p.Resolved), Model: len(p.Model.Roles) > 0, Ceiling: ceiling, AskUnlisted: p.AskUnlisted, NoDesk: p.NoDesk,
		Bound: Bound(p.Secrets),
	}
}

// Bound is where secrets go.
func Bound(secrets []listed.Secret) (out []policy.Bound) {
	for _, s := range secrets {
		for _, host := range s.Hosts {
			out = append(out, policy.Bound{Name: host, Ports: s.Ports})
		}
	}
	return out
}

// CeilingOf is the operator's file as a policy.
func CeilingOf(c *config.Ceiling) policy.Ceiling {
	return policy.Ceiling{Limits: c.Limited, Allow: Rules(c.Allow), Deny: Rules(c.Deny), Open: Ranges(c.Open), Mixed: c.RefuseMixed, Proxy: proxyOf(c.Proxy), Roots: c.Roots}
}

func proxyOf(x *config.Proxy) *policy.Proxy {
	if x == nil {
		return nil
	}
	return &policy.Proxy{Host: x.Host, Port: x.Port, TLS: x.TLS, Roots: x.Roots, Auth: x.Auth, Direct: x.Direct, ByName: x.ByName, UDP: x.UDP}
}

// Rules translates net rules. A rule without an id is called after its place.
func Rules(rules []declared.NetRule) []policy.Rule {
	out := make([]policy.Rule, 0, len(rules))
	for i, r := range rules {
		rule := policy.Rule{
			ID: r.ID, Line: r.Line, Depth: r.Dest.Depth, Ports: r.Ports, TCP: r.Transports&right.TCP != 0,
			UDP: r.Transports&right.UDP != 0, HTTP: r.HTTP, Resolve: r.Resolve,
			Methods: r.Methods, Paths: r.Paths, EncodedSlash: r.EncodedSlash, Correlate: r.Correlate,
			Ask: r.Ask, Hold: r.Hold, NoECH: r.NoECH,
		}
		if rule.ID == "" {
			rule.ID = declared.AutoID + strconv.Itoa(i+1)
		}
		switch r.Inner {
		case right.InnerDefault:
		case right.InnerOff:
			rule.Inner = policy.InnerOff
		case right.InnerCheck:
			rule.Inner = policy.InnerName
		case right.InnerTLS:
			rule.Inner = policy.InnerTLS
		}
		switch r.Dest.Kind {
		case right.Name:
			rule.Name = r.Dest.Name
		case right.AnyName:
			rule.Name = policy.AnyName
		case right.Suffix:
			rule.Suffix = r.Dest.Name
		case right.Literal:
			if r.Dest.Prefix.IsSingleIP() {
				rule.IP = r.Dest.Prefix.Addr()
			} else {
				rule.CIDR = r.Dest.Prefix
			}
		case right.NoDest: // matches nothing: the box refuses a rule without a destination
		}
		out = append(out, rule)
	}
	return out
}

// Ranges translates address ranges.
func Ranges(ranges []declared.Range) []policy.Range {
	out := make([]policy.Range, 0, len(ranges))
	for _, r := range ranges {
		out = append(out, policy.Range{CIDR: r.Prefix, Ports: r.Ports})
	}
	return out
}

// Wire is a policy in the form that the box reads. Its version is the digest of all of
// it. What belongs to the host's own state (Own) goes with the names; secrets are those of
// p.Bound.
func Wire(p policy.Policy, secrets []*skepv1.BoxSecret) (*skepv1.BoxPolicy, error) {
	c := p.Ceiling
	out := &skepv1.BoxPolicy{
		Rules: wireRules(p.Rules), ResolvedAddresses: wireRanges(p.Resolved), Model: p.Model, AskUnlisted: p.AskUnlisted, NoDesk: p.NoDesk, Answers: wireAnswers(p.Answers), Secrets: secrets,
		Ceiling: &skepv1.BoxCeiling{
			Limits: c.Limits, Allow: wireRules(c.Allow), ResolvedAddresses: wireRanges(c.Resolved), Deny: wireRules(c.Deny),
			Open: wireRanges(c.Open), NoFloor: c.NoFloor, MixedRefuse: c.Mixed, Proxy: wireProxy(c.Proxy),
		},
	}
	bound, ok := proto.Clone(out).(*skepv1.BoxPolicy)
	if x := bound.GetCeiling().GetProxy(); ok && x != nil {
		x.Auth = "" // a digest is told to everyone
	}
	for _, s := range bound.GetSecrets() {
		s.Placeholder = "" // another one in every cell, and no part of what is allowed
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(bound)
	if err != nil {
		return nil, fmt.Errorf("digest policy: %w", err)
	}
	digest := sha256.Sum256(raw)
	out.Version = hex.EncodeToString(digest[:])
	return out, nil
}

func wireRules(rules []policy.Rule) []*skepv1.BoxRule {
	out := make([]*skepv1.BoxRule, 0, len(rules))
	for _, r := range rules {
		b := &skepv1.BoxRule{
			Id: r.ID, Line: uint32(r.Line), Name: r.Name, Suffix: r.Suffix, Depth: uint32(r.Depth), Ports: ports(r.Ports),
			Tcp: r.TCP, Udp: r.UDP, Http: r.HTTP, Resolve: addresses(r.Resolve),
			Methods: r.Methods, Paths: r.Paths, EncodedSlash: r.EncodedSlash, Correlate: r.Correlate,
			Ask: r.Ask, HoldMilliseconds: uint32(r.Hold.Milliseconds()), NoEch: r.NoECH,
			Inner: [...]string{policy.InnerDefault: "", policy.InnerOff: "off", policy.InnerName: "check", policy.InnerTLS: "tls"}[r.Inner],
		}
		if r.IP.IsValid() {
			b.Ip = r.IP.String()
		}
		if r.CIDR.IsValid() {
			b.Cidr = r.CIDR.String()
		}
		out = append(out, b)
	}
	return out
}

func wireAnswers(answers []policy.Answer) []*skepv1.BoxAnswer {
	out := make([]*skepv1.BoxAnswer, 0, len(answers))
	for _, a := range answers {
		b := &skepv1.BoxAnswer{Id: a.ID, Name: a.Name, Port: uint32(a.Port), Udp: a.Transport == flow.UDP, Allow: a.Allow, Once: a.Once, Used: a.Used, Drafted: a.Drafted}
		if a.Addr.IsValid() {
			b.Ip = a.Addr.String()
		}
		out = append(out, b)
	}
	return out
}

func wireProxy(x *policy.Proxy) *skepv1.BoxProxy {
	if x == nil {
		return nil
	}
	return &skepv1.BoxProxy{
		Host: x.Host, Port: uint32(x.Port), Tls: x.TLS, Roots: x.Roots, Auth: x.Auth, Direct: x.Direct, ByName: x.ByName, Udp: x.UDP,
	}
}

func wireRanges(ranges []policy.Range) []*skepv1.BoxRange {
	out := make([]*skepv1.BoxRange, 0, len(ranges))
	for _, r := range ranges {
		out = append(out, &skepv1.BoxRange{Cidr: r.CIDR.String(), Ports: ports(r.Ports)})
	}
	return out
}

func ports(set right.Ports) []*skepv1.BoxPorts {
	out := make([]*skepv1.BoxPorts, 0, len(set))
	for _, r := range set {
		out = append(out, &skepv1.BoxPorts{First: uint32(r.First), Last: uint32(r.Last)})
	}
	return out
}

func addresses(list []netip.Addr) []string {
	out := make([]string, 0, len(list))
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}
