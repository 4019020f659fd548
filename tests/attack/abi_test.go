package attack

import (
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestN23OtherSystemCallTables: i386 and x32 numbers are no way around the filter (L11).
func TestN23OtherSystemCallTables(t *testing.T) {
	attack{technique: "abi"}.run(t, celltest.New(t))
}
