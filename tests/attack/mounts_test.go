package attack

import (
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestMountsStandAsTheyAre: the tree of a cell is what it was built to be (L8, L11).
func TestMountsStandAsTheyAre(t *testing.T) {
	c := celltest.New(t)
	attack{
		technique: "mounts", own: true, outside: []string{t.TempDir(), "/proc"}, inside: []string{c.Work, "/usr"},
		root: []string{"swapon", "quotactl", "remount writable", "unmount"},
	}.run(t, c)
}
