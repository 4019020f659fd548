package cases

import (
	"fmt"
	"slices"
	"strings"
)

// T is what a case needs of a test.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // does not come back
	Skipf(format string, args ...any)  // does not come back
	Cleanup(f func())
}

// Case is one number of the list.
type Case struct {
	ID, What string
	Later    bool // for a later release: Run is nil
	Run      func(*Bench)
}

// All are the cases in the order of the page.
func All() []Case {
	return slices.Concat(heads(), targets(), destinations(), listeners(), datagrams(), inner(), policies(), flows(), ingress(), later())
}

// later stay listed (section 21).
func later() (out []Case) {
	for group, n := range map[string]int{"BH": 9, "BT": 10} {
		for i := range n {
			out = append(out, Case{ID: fmt.Sprintf("%s-%d", group, i+1), What: map[string]string{"BH": "HTTP/2 on the channel", "BT": "the TLS listener"}[group], Later: true})
		}
	}
	out = append(out, Case{ID: "BU-2", What: "connect-udp over HTTP/2", Later: true})
	slices.SortFunc(out, func(a, b Case) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Bench is what one case has: a boundary to start, and servers to reach.
type Bench struct {
	T
	Program []string                        // the command that starts a boundary
	Dir     string                          // short, and the case's own
	Host    func(name string, to ...string) // makes a name resolve; nil where names cannot be made
	Asked   func(name string) int           // how often a name was asked for; nil where that is not known
	Port    uint16                          // of the echo servers, and of the rules

	echo  *servers
	count int // boundaries started
}
