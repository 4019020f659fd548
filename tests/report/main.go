// Report reads what go test -json prints, shows it while it runs, and counts it at the end.
//
// Its laws:
//   - A package that failed without a failing test (it did not build, it
//     panicked, it ran out of time) counts as one failure: a broken suite can
//     not read as a short one.
//   - A test with subtests is counted by its subtests alone.
//   - Every skip is shown with the reason that the test gave.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout)
	if errors.Is(err, errFailed) {
		os.Exit(1) // what failed was shown, and the closing line stays the last
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// run is "follow FILE", which shows standard input and appends it to FILE, or
// "sum FILES", which counts. Both fail where a test failed.
func run(args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "follow":
		keep, err := os.OpenFile(args[1], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("keep the results: %w", err)
		}
		err = follow(in, keep, out)
		if closed := keep.Close(); err == nil && closed != nil {
			err = fmt.Errorf("keep the results: %w", closed)
		}
		return err
	case len(args) >= 2 && args[0] == "sum":
		return sum(args[1:], out)
	}
	return fmt.Errorf("usage: report follow FILE < JSON, or report sum FILES")
}
