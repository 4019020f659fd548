// Command conformance runs the list of the boundary (boundary.md, section 21) and prints
// what came of each case by each route: a native cell, the Unix socket of any program that
// takes the flags of `skep-box run`, and a guest by its device or its endpoint.
//
// Its laws:
//   - A case that was not run is never counted as passed.
//   - It reaches nothing but loopback, and a resolver only through the boundary.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"skep.dev/skep/tests/conformance/cases"
	"skep.dev/skep/tests/conformance/columns"
)

func main() {
	if code, done := roles(os.Args[1:]); done {
		os.Exit(code)
	}
	failures, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	if failures > 0 {
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	only    *regexp.Regexp
	json    bool
	shown   []columns.Column
	root    string   // of this repository, for its tests
	init    string   // skep-init, for the explicit route
	program []string // the boundary under test
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	only := flags.String("run", "", "regular expression of the cases to run")
	which := flags.String("columns", "", "of native,socket,tun,explicit: the routes to show (default: all; with a COMMAND: socket)")
	flags.BoolVar(&o.json, "json", false, "print the table as JSON")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "go run ./tests/conformance [-run PATTERN] [-columns LIST] [-json] [COMMAND ARGUMENT...]\n"+
			"COMMAND is started as `skep-box` would be, with `run --socket S --bundle B --ceiling C --records R ...`; without one it is bin/skep-box.\n"+
			"The columns native and tun are tests of this repository, of the programs in bin/ (or SKEP_BIN).\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("read -run: %w", err)
	}
	o.program, o.shown = flags.Args(), columns.All()
	if len(o.program) > 0 {
		o.shown = []columns.Column{columns.Socket}
	}
	if *which != "" {
		o.shown = nil
		for word := range strings.SplitSeq(*which, ",") {
			if !slices.Contains(columns.All(), columns.Column(word)) {
				return o, fmt.Errorf("-columns: %q is none of %v", word, columns.All())
			}
			o.shown = append(o.shown, columns.Column(word))
		}
	}
	if o.root, err = filepath.Abs("."); err != nil {
		return o, err
	}
	bin := os.Getenv("SKEP_BIN")
	if bin == "" {
		bin = filepath.Join(o.root, "bin")
	}
	o.init = filepath.Join(bin, "skep-init")
	if len(o.program) == 0 {
		o.program = []string{filepath.Join(bin, "skep-box")}
	}
	return o, nil
}

func run(args []string, out io.Writer) (failures int, err error) {
	o, err := parse(args)
	if err != nil {
		return 0, err
	}
	table, err := o.table()
	if err != nil {
		return 0, err
	}
	if o.json {
		err = writeJSON(out, table)
	} else {
		writeText(out, table, o.shown)
	}
	return counts(table)[failed], err
}

// table runs every case that is wanted by every route that is shown.
func (o options) table() ([]row, error) {
	list, err := columns.List()
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(c columns.Case) bool { return !o.only.MatchString(c.ID) })
	var tests columns.Tests
	results := map[columns.Test]*result{}
	if o.ours() {
		if tests, err = columns.Find(o.root); err != nil {
			return nil, err
		}
		var wanted []columns.Test
		for _, c := range list {
			for _, column := range o.shown {
				if c.Places[column].Applies {
					wanted = append(wanted, tests[column][c.ID]...)
				}
			}
		}
		if results, err = goTests(o.root, wanted); err != nil {
			return nil, err
		}
	}
	var table []row
	for _, c := range list {
		r := row{ID: c.ID, What: c.What, Columns: map[columns.Column]outcome{}}
		for _, column := range o.shown {
			p := c.Places[column]
			if !p.Applies {
				r.Columns[column] = outcome{State: excluded, Reason: p.Why}
				continue
			}
			all := of(tests[column][c.ID], results, column).and(o.drive(column, c.ID))
			if all.State == "" {
				all.State, all.Reason = missing, p.Why
			}
			r.Columns[column] = all
		}
		table = append(table, r)
	}
	return table, nil
}

// ours reports whether tests of this repository have a part in it.
func (o options) ours() bool {
	return !slices.Equal(o.shown, []columns.Column{columns.Socket}) || filepath.Base(o.program[0]) == "skep-box"
}

// drive runs a case against the boundary, by its socket or through a guest; nil: there is none.
func (o options) drive(column columns.Column, id string) *result {
	i := slices.IndexFunc(cases.All(), func(c cases.Case) bool { return c.ID == id && !c.Later })
	switch {
	case i < 0:
		return nil
	case column == columns.Socket:
		return one(cases.All()[i], o.program)
	case column == columns.Explicit && throughGuest(id):
		return one(cases.All()[i], relayed(o.init, o.program))
	}
	return nil
}

// result is a case under way, as a test.
type result struct {
	word    string // passed, FAILED or skipped
	lines   []string
	cleanup []func()
}

// one runs a case in a goroutine of its own, which Fatalf ends.
func one(c cases.Case, program []string) *result {
	r := &result{word: passed}
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
	r.word = failed
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// Fatalf notes a fault, and ends the case.
func (r *result) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf says why the case cannot be run.
func (r *result) Skipf(format string, args ...any) {
	r.word = skipped
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Cleanup is called at the end, the last first.
func (r *result) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
