package main

import (
	"fmt"
	"os"

	"skep.dev/skep/tests/bench/traffic"
)

// roleArgument makes this program one side of a measure, instead of the whole.
const roleArgument = "role"

func role(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("a role needs its name and an argument: %q", args)
	}
	switch args[0] {
	case "server":
		return traffic.Serve(args[1])
	case "client":
		return traffic.Obey(args[1], os.Stdin, os.Stdout)
	case "network":
		return networkInside(args[1])
	}
	return fmt.Errorf("unknown role %q", args[0])
}
