package testlab_test

import (
	"io"
	"net"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// TestAlone: a test may have a lab to itself, also as a subtest. (This package
// runs in one as a whole, so that here only the inner side is seen; tests/attack
// has both.)
func TestAlone(t *testing.T) {
	t.Run("a subtest", func(t *testing.T) {
		testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
			lab.Greet("1.2.3.4:5", "x")
			c, err := net.Dial("tcp", "1.2.3.4:5")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Error(err)
			}
		})
	})
}
