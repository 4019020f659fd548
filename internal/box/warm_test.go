package box

import (
	"context"
	"testing"
)

// What warms a spare box must be accepted by the code that it warms, or it warms nothing.
func TestWarm(t *testing.T) {
	if err := warm(context.Background()); err != nil {
		t.Fatal(err)
	}
}
