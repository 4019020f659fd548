package internet

import (
	"net/netip"
	"slices"
	"sync/atomic"
)

// Names is what the host knows about names: its resolvers in order and its hosts
// file. It is a plain value, pushed by the daemon (B101).
type Names struct {
	Resolvers []netip.AddrPort
	Hosts     map[string][]netip.Addr // normalised name to addresses
}

// Dest opens what is neither the mesh nor the model gateway. Its zero value
// resolves nothing.
type Dest struct {
	names atomic.Pointer[Names]
}

// Set replaces what is known about names; requests under way keep the old value.
func (d *Dest) Set(n Names) {
	n.Resolvers = slices.Clone(n.Resolvers)
	d.names.Store(&n)
}

func (d *Dest) known() Names {
	if n := d.names.Load(); n != nil {
		return *n
	}
	return Names{}
}
