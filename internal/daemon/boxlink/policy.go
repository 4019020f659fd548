package boxlink

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/right/declared"
)

// Policy is a profile's net rights under the operator's ceiling, in the form
// that the box reads. Its version is the digest of all of it.
func Policy(p *profile.Profile, ceiling *skepv1.BoxCeiling) (*skepv1.BoxPolicy, error) {
	out := &skepv1.BoxPolicy{
		Rules: Rules(p.Net), ResolvedAddresses: Ranges(p.Resolved),
		Model: len(p.Model.Roles) > 0, Ceiling: ceiling,
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("digest policy: %w", err)
	}
	digest := sha256.Sum256(raw)
	out.Version = hex.EncodeToString(digest[:])
	return out, nil
}

// Rules translates net rules. A rule without an id is called after its place.
func Rules(rules []declared.NetRule) []*skepv1.BoxRule {
	out := make([]*skepv1.BoxRule, 0, len(rules))
	for i, r := range rules {
		id := r.ID
		if id == "" {
			id = fmt.Sprintf("net-%d", i+1)
		}
		b := &skepv1.BoxRule{
			Id: id, Line: uint32(r.Line), Ports: ports(r.Ports), Depth: uint32(r.Dest.Depth),
			Tcp: r.Transports&right.TCP != 0, Udp: r.Transports&right.UDP != 0, Http: r.HTTP,
			Resolve: addresses(r.Resolve),
		}
		if r.Inner != right.InnerDefault {
			b.Inner = r.Inner.String()
		}
		switch r.Dest.Kind {
		case right.Name:
			b.Name = r.Dest.Name
		case right.AnyName:
			b.Name = "*"
		case right.Suffix:
			b.Suffix = r.Dest.Name
		case right.Literal:
			if r.Dest.Prefix.IsSingleIP() {
				b.Ip = r.Dest.Prefix.Addr().String()
			} else {
				b.Cidr = r.Dest.Prefix.String()
			}
		case right.NoDest: // matches nothing: the box refuses a rule without a destination
		}
		out = append(out, b)
	}
	return out
}

// Ranges translates address ranges.
func Ranges(ranges []declared.Range) []*skepv1.BoxRange {
	out := make([]*skepv1.BoxRange, 0, len(ranges))
	for _, r := range ranges {
		out = append(out, &skepv1.BoxRange{Cidr: r.Prefix.String(), Ports: ports(r.Ports)})
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
