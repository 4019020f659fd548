package internet

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"skep.dev/skep/internal/dest/internet/datagram"
	"skep.dev/skep/internal/dest/internet/splicer"
)

// known is what the host knows about names, as the daemon pushed it (B101). It is
// not changed once it is stored.
type known struct {
	resolvers []netip.AddrPort
	hosts     map[string][]netip.Addr
}

// Dest opens what is neither the mesh nor the model gateway. Its zero value
// resolves nothing.
type Dest struct {
	names atomic.Pointer[known]
	loop  splicer.Loop // moves the bytes of all flows
	room  datagram.Room

	interceptor atomic.Pointer[Interceptor]
}

// Set replaces what is known about names: the resolvers in order, and the hosts
// file by normalised name. Requests under way keep the old value.
func (d *Dest) Set(resolvers []netip.AddrPort, hosts map[string][]netip.Addr) {
	d.names.Store(&known{resolvers: slices.Clone(resolvers), hosts: hosts})
}

func (d *Dest) current() known {
	if n := d.names.Load(); n != nil {
		return *n
	}
	return known{}
}
