package internet

import (
	"context"
	"errors"
	"io"
	"net"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
)

// Interceptor knows the secrets of the cell.
type Interceptor interface {
	// Carry carries a flow to which a secret is bound (B123). hello is what the agent has sent
	// so far, a TLS hello that the permit allows as inner; up has nothing sent. It owns both
	// connections.
	Carry(ctx context.Context, p boundary.Permit, agent, up net.Conn, hello []byte, inner flow.Inner) boundary.End
	// Stray judges a request that goes on as plain HTTP: what is fed of it must not once there
	// is a reason (B129).
	Stray(ctx context.Context, q flow.Request, path string) func([]byte) flow.Reason
}

// Intercept has i carry every bound flow, and look at every plain request, from now on.
func (d *Dest) Intercept(i Interceptor) { d.interceptor.Store(&i) }

// intercept reads the hello of a flow to which a secret is bound, and leaves the rest to
// whoever carries it. Without one the flow ends: it is never relayed as it is.
func (r *relay) intercept(by *Interceptor) boundary.End {
	cut := func() {
		boundary.Reset(r.agent)
		boundary.Reset(r.up)
	}
	if by == nil {
		cut()
		return boundary.End{Reason: flow.SecretUnavailable}
	}
	r.meter.Touch()
	stop := context.AfterFunc(r.ctx, cut)
	first, err := r.readFirst()
	if !stop() {
		return boundary.End{Reason: flow.Revoked}
	}
	switch {
	case err != nil && len(first.Bytes()) == 0: // the agent has said nothing
		cut()
		if errors.Is(err, errIdle) {
			return boundary.End{Reason: flow.IdleTimeout}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return boundary.End{Reason: boundary.EndedBy(err)}
	case err != nil: // too large, too slow or cut off in the middle: it named nobody
		first.Inner = flow.Inner{Protocol: flow.TLS}
	}
	if v := r.permit.DecideInner(first.Inner); !v.Allowed() {
		_ = r.up.Close()
		if first.Inner.Protocol == flow.TLS {
			r.linger(alertDenied)
		} else {
			r.linger("")
		}
		_ = r.agent.Close()
		return boundary.End{Reason: v.Refusal(), Inner: first.Inner}
	}
	return (*by).Carry(r.ctx, r.permit, r.agent, r.up, first.Bytes(), first.Inner)
}

// strays looks for placeholders in one plain request of a cell that has secrets; nil for any
// other.
func (r *relay) strays(path string) func([]byte) flow.Reason {
	by := r.interceptor
	if by == nil {
		return nil
	}
	return (*by).Stray(r.ctx, r.permit.Request(), path)
}

// strayError ends a request in whose body a placeholder was found.
type strayError struct{ why flow.Reason }

func (e *strayError) Error() string { return "the body of a request: " + e.why.Token() }
