// Command skep-init is the route out of a guest: run it in front of any program in a
// container without a network, a virtual machine or a pod, and the program's ordinary
// sockets and names reach the boundary.
package main

import (
	"errors"
	"fmt"
	"os"

	"skep.dev/skep/guest/agent"
	"skep.dev/skep/guest/start"
)

func main() {
	status, err := start.Main(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "skep-init:", err)
		var usage *start.UsageError
		if errors.As(err, &usage) {
			status = agent.SetupFailed
		}
	}
	os.Exit(status)
}
