// Command conformance runs the list of the boundary (boundary.md, section 21) against
// any program that takes the flags of `skep-box run`, and prints what came of each case.
//
// Its laws:
//   - A case that was not run is never counted as passed.
//   - It reaches nothing but loopback, and a resolver only through the boundary.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"

	"skep.dev/skep/tests/conformance/cases"
)

func main() {
	failed, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func run(args []string) (failed int, err error) {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	only := flags.String("run", "", "regular expression of the cases to run")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "go run ./tests/conformance [-run PATTERN] [COMMAND ARGUMENT...]\n"+
			"COMMAND is started as `skep-box` would be, with `run --socket S --bundle B --ceiling C --records R ...`; without one it is bin/skep-box\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return 0, fmt.Errorf("read -run: %w", err)
	}
	program := flags.Args()
	if len(program) == 0 {
		built, err := filepath.Abs("bin/skep-box")
		if err != nil {
			return 0, err
		}
		program = []string{built}
	}
	counts := map[string]int{}
	for _, c := range cases.All() {
		if !wanted.MatchString(c.ID) {
			continue
		}
		r := one(c, program)
		counts[r.word]++
		fmt.Printf("%-8s %-6s %s\n", r.word, c.ID, c.What)
		for _, line := range r.lines {
			fmt.Printf("                %s\n", line)
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped, %d later\n", counts["ok"], counts["FAILED"], counts["skipped"], counts["later"])
	return counts["FAILED"], nil
}

// result is a case under way, as a test.
type result struct {
	word    string // ok, FAILED, skipped or later
	lines   []string
	cleanup []func()
}

// one runs a case in a goroutine of its own, which Fatalf ends.
func one(c cases.Case, program []string) *result {
	r := &result{word: "ok"}
	if c.Later {
		r.word = "later"
		return r
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(r.cleanup) {
				f()
			}
		}()
		dir, err := os.MkdirTemp("", "c")
		if err != nil {
			r.Fatalf("make a directory: %v", err)
		}
		r.Cleanup(func() { _ = os.RemoveAll(dir) })
		b := &cases.Bench{T: r, Program: program, Dir: dir}
		b.Serve()
		c.Run(b)
	}()
	<-done
	return r
}

// Helper is for tests that print lines.
func (r *result) Helper() {}

// Errorf notes a fault.
func (r *result) Errorf(format string, args ...any) {
	r.word = "FAILED"
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// Fatalf notes a fault, and ends the case.
func (r *result) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf says why the case cannot be run.
func (r *result) Skipf(format string, args ...any) {
	r.word = "skipped"
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Cleanup is called at the end, the last first.
func (r *result) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
