package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"skep.dev/skep/tests/conformance/columns"
)

// What can come of a case in one column.
const (
	passed   = "passed"
	failed   = "FAILED"
	skipped  = "skipped"
	missing  = "no test"
	excluded = "-" // does not apply
)

// outcome is one cell of the table.
type outcome struct {
	State  string   `json:"state"`            // passed, FAILED, skipped, no test, or -: does not apply
	Reason string   `json:"reason,omitempty"` // why not, or what failed
	Tests  []string `json:"tests,omitempty"`
}

// and adds what another test says.
func (o outcome) and(r *result) outcome {
	if r == nil {
		return o
	}
	worse := []string{"", passed, skipped, failed}
	if slices.Index(worse, r.word) > slices.Index(worse, o.State) {
		o.State, o.Reason = r.word, ""
		if r.word != passed {
			o.Reason = strings.Join(r.lines, "\n")
		}
	}
	return o
}

// row is one case.
type row struct {
	ID      string                     `json:"id"`
	What    string                     `json:"what"`
	Columns map[columns.Column]outcome `json:"columns"`
}

// counts are the cells of a table by their state.
func counts(table []row) map[string]int {
	n := map[string]int{}
	for _, r := range table {
		for _, o := range r.Columns {
			n[o.State]++
		}
	}
	return n
}

func writeJSON(out io.Writer, table []row) error {
	e := json.NewEncoder(out)
	e.SetIndent("", " ")
	return e.Encode(table)
}

// writeText prints a line for each case, and below it why something was not run.
func writeText(out io.Writer, table []row, shown []columns.Column) {
	fmt.Fprintf(out, "%-6s", "")
	for _, c := range shown {
		fmt.Fprintf(out, " %-8s", c)
	}
	fmt.Fprintln(out)
	why := map[string][]string{}
	var order []string
	for _, r := range table {
		fmt.Fprintf(out, "%-6s", r.ID)
		for _, c := range shown {
			o := r.Columns[c]
			fmt.Fprintf(out, " %-8s", o.State)
			if o.State == passed {
				continue
			}
			key := fmt.Sprintf("%s, %s: %s", c, map[string]string{excluded: "does not apply"}[o.State]+strings.TrimPrefix(o.State, excluded), o.Reason)
			if why[key] == nil {
				order = append(order, key)
			}
			why[key] = append(why[key], r.ID)
		}
		fmt.Fprintln(out, " "+r.What)
	}
	fmt.Fprintln(out)
	slices.Sort(order)
	for _, key := range order {
		fmt.Fprintf(out, "%s\n    %s\n", key, strings.Join(why[key], " "))
	}
	n := counts(table)
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped, %d without a test, %d do not apply\n", n[passed], n[failed], n[skipped], n[missing], n[excluded])
}
