package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
)

// Proxy is the operator's HTTP proxy for all egress (B180). It is part of the ceiling:
// no profile names it, and no cell reaches it by itself.
type Proxy struct {
	Host   string // normalised name or plain address
	Port   uint16
	TLS    bool
	Roots  []byte   // PEM, whom its certificate is checked against; only with TLS
	Auth   string   // user:password, sent by Basic; empty without
	Direct []string // names that are dialed without it: exact, or ".x" for all below x
	ByName bool     // it is asked for names, whose addresses then nobody checks (B181)
	UDP    bool     // UDP is dialed without it; else it is refused
}

// Check says what is wrong with a proxy that arrived from another program.
func (x *Proxy) Check() error {
	if x == nil {
		return nil
	}
	host, addr, err := name.HostOrAddr(x.Host)
	switch {
	case err != nil || addr.IsValid() && addr.String() != x.Host || !addr.IsValid() && host != x.Host:
		return fmt.Errorf("the proxy's host %q is not in its normal form", x.Host)
	case x.Port == 0:
		return errors.New("the proxy has no port")
	case x.TLS && len(x.Roots) == 0:
		return errors.New("nobody vouches for the proxy's certificate")
	}
	return nil
}

// Through is the proxy by which an allowed request leaves; nil: it is dialed.
func (p Policy) Through(q flow.Request) *Proxy {
	x := p.Ceiling.Proxy
	if x == nil || q.Direction == flow.In || x.isDirect(q.Name) || q.Transport == flow.UDP && x.UDP {
		return nil
	}
	return x
}

func (x *Proxy) isDirect(host string) bool {
	return host != "" && slices.ContainsFunc(x.Direct, func(d string) bool {
		return d == host || strings.HasPrefix(d, ".") && strings.HasSuffix(host, d)
	})
}

// hides reports whether a request is for the proxy itself, or needs what it cannot carry.
func (x *Proxy) hides(q flow.Request) bool {
	switch {
	case x == nil:
		return false
	case q.Port == x.Port && (q.Name == x.Host || q.Addr.IsValid() && q.Addr.String() == x.Host):
		return true
	}
	return q.Transport == flow.UDP && !x.UDP && !x.isDirect(q.Name)
}

// isAt reports whether an address to which a name resolved is the proxy's own.
func (x *Proxy) isAt(a netip.Addr, port uint16) bool {
	return x != nil && port == x.Port && a.String() == x.Host
}
