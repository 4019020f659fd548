package policy

import (
	"fmt"
	"testing"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/right"
)

func many(n int) Policy {
	var p Policy
	for i := range n {
		set, _ := right.NewPorts(right.PortRange{First: uint16(2*i + 1000), Last: uint16(2*i + 1000)})
		p.Rules = append(p.Rules, Rule{ID: fmt.Sprint(i), Name: fmt.Sprintf("n%d.test", i), Ports: set, TCP: true})
	}
	return p
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, MaxRules} {
		p, q := many(n), out("n9.test", 1018)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				Decide(q, p)
			}
		})
	}
}

// A DNS answer waits for this: it must stay far below the 20 ms of B14.
func BenchmarkPorts(b *testing.B) {
	p := many(MaxRules)
	for b.Loop() {
		Ports("n9.test", flow.TCP, p)
	}
}
