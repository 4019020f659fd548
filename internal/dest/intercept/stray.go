package intercept

import (
	"context"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/secret"
)

// Stray judges one request that goes on as plain HTTP, where no value is ever filled in: what
// is fed of it must not go on once there is a reason, which is recorded (B129).
func (s *Secrets) Stray(ctx context.Context, q flow.Request, path string) func([]byte) flow.Reason {
	stray := s.Keeper.Stray(secret.At{Host: q.Name, Port: q.Port, Path: path})
	return func(b []byte) flow.Reason {
		why, use := stray.Feed(b)
		if why != flow.None {
			_ = s.Record(ctx, q.ID, q.Name, use, why) // refused either way
		}
		return why
	}
}
