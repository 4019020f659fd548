package main

import "fmt"

// roleArgument makes this program one side of a measure, instead of the whole.
const roleArgument = "role"

func role(args []string) error {
	return fmt.Errorf("unknown role %q", args)
}
