// Command skepd owns the life of cells and writes their record. `skep` starts it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"skep.dev/skep/internal/build"
	"skep.dev/skep/internal/launch/skepd"
)

func main() {
	err := skepd.Run(os.Args[1:], build.This(), os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "skepd:", err)
		os.Exit(1)
	}
}
