// Command skep runs an agent in a cell, shows what it changed, and applies it on
// a yes.
package main

import (
	"os"

	"skep.dev/skep/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
