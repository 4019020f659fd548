// Command skep-connector serves the boundaries of agents that another runtime runs, a
// skep-box for each. It is what `skep-box run` and `skep-box serve` hand over to.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"skep.dev/skep/internal/launch/connector"
)

func main() {
	err := connector.Run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "skep-box:", err)
		os.Exit(1)
	}
}
