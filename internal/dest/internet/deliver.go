package internet

import (
	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/dest/internet/splicer"
)

// Relay relays between connections that others have made, as [Dest] does between those that
// it dials. Its zero value is ready.
type Relay struct{ dest Dest }

// Upstream is a connection that waits for the other side of a permitted flow.
func (r *Relay) Upstream(c splicer.Stream, p boundary.Permit) boundary.Upstream {
	return &upstream{conn: c, dest: &r.dest, permit: p}
}
