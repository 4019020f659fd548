package intercept

import (
	"skep.dev/skep/internal/dest/intercept/streams"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/secret"
)

// streams carries HTTP/2, after both handshakes.
func (f *carried) streams(failed flow.Reason) (flow.Reason, error) {
	q := f.permit.Request()
	rules := streams.Rules{
		Host: q.Name, Port: q.Port, Keeper: f.Keeper, Now: f.Now, Room: &f.held, Failed: failed,
		Decide: func(authority, method, path string) flow.Reason {
			f.inner.Method, f.inner.Path = method, path
			if v := f.permit.DecideInner(f.inner); !v.Allowed() {
				return v.Refusal()
			}
			if !f.names(authority) {
				return flow.HTTPHostMismatch
			}
			return flow.None
		},
		Record: func(use secret.Use, why flow.Reason) error { return f.Record(f.ctx, q.ID, q.Name, use, why) },
	}
	if id := f.permit.Correlate(); id != "" {
		rules.Flow = secret.Field{Name: "x-skep-flow", Value: []byte(id)}
	}
	why, err := streams.Carry(streams.Ends{
		Agent: f.agent, Destination: f.server, StopAgent: f.rawAgent.stop, StopDestination: f.rawUp.stop, Cut: f.cut,
	}, rules)
	if ended := f.ctx.Err(); ended != nil && why != flow.SecretReflected { // which counts more than a request that was refused
		return flow.None, ended
	}
	return why, err
}
