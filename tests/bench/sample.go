package main

import (
	"fmt"

	"skep.dev/skep/tests/bench/traffic"
)

// contender is one of those who take turns.
type contender struct {
	name    string
	turn    func() (float64, error) // one figure
	skipped string                  // why it has no turn
	figures []float64
}

// alternate gives each contender its turn, round after round, the order turned
// by one each time. A first round that warms what is cold does not count.
func alternate(rounds int, all ...*contender) error {
	for round := -1; round < rounds; round++ {
		for i := range all {
			c := all[(i+max(round, 0))%len(all)]
			if c.skipped != "" {
				continue
			}
			v, err := c.turn()
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round >= 0 {
				c.figures = append(c.figures, v)
			}
		}
	}
	return nil
}

func (c *contender) median() float64 { return traffic.Quantile(c.figures, 0.5) }
