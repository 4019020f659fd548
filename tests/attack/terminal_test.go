package attack

import (
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
)

// TestTerminalsDoNotType: TIOCSTI and TIOCLINUX are refused, with whatever bits
// above those that the kernel reads (L18).
func TestTerminalsDoNotType(t *testing.T) {
	for name, size := range map[string]*cell.Size{"with pipes": nil, "with a terminal": {Rows: 24, Columns: 80}} {
		t.Run(name, func(t *testing.T) {
			c := celltest.New(t)
			c.Spec.Terminal = size
			attack{technique: "terminal", root: []string{"TIOCSTI", "TIOCSTI with a high bit", "TIOCSTI with every high bit"}}.run(t, c)
		})
	}
}
