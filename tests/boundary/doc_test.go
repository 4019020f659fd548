// Package boundary lets a program in a cell try to reach what it may not, and what it
// may, with the built programs in a lab (B1 to B115, cases BX and BG).
//
// Its laws:
//   - skepd, boxes and cells stand in a network namespace of the test's own, in which
//     every address answers: what a cell does not reach is kept from it by Skep.
//   - A server says what came to it. That a cell got nothing is half of a proof; that
//     nothing arrived, and that the record says why, is the other half.
//   - The program in the cell is this test itself (probe_test.go): ordinary sockets.
package boundary

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == probeArgument {
		os.Exit(probe(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "fetch" {
		os.Exit(fetch(os.Args[2]))
	}
	if len(os.Args) == 4 && os.Args[1] == streamArgument {
		os.Exit(stream(os.Args[2], os.Args[3]))
	}
	if len(os.Args) == 4 && os.Args[1] == churnArgument {
		os.Exit(churn(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}
