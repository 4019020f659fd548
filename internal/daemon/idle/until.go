package idle

import (
	"context"
	"fmt"
	"time"
)

// Until tries until nothing is busy any more, which try names, or something fails. Where
// ctx ends before, the error says what is busy.
func Until(ctx context.Context, try func() (busy string, err error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		busy, err := try()
		if busy == "" || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: try again when that has ended: %w", busy, ctx.Err())
		}
	}
}
