package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Row is one line of the table.
type Row struct {
	Measure string  `json:"measure"`
	Unit    string  `json:"unit,omitempty"`
	Ours    float64 `json:"ours"`
	Other   string  `json:"other,omitempty"` // what ours is compared with
	Theirs  float64 `json:"theirs,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"` // ours through theirs
	Goal    string  `json:"goal,omitempty"`
	Met     *bool   `json:"met,omitempty"` // nil where there is no goal
	Turns   int     `json:"turns,omitempty"`
	Note    string  `json:"note,omitempty"`
	Skipped string  `json:"skipped,omitempty"` // why there is no figure
}

// beside makes the row of a comparison. met judges ours, theirs and their ratio.
func beside(measure, unit string, ours float64, other string, theirs float64, goal string, met func(ratio float64) bool) Row {
	r := Row{Measure: measure, Unit: unit, Ours: ours, Other: other, Theirs: theirs, Goal: goal}
	if theirs != 0 {
		r.Ratio = ours / theirs
	}
	if met != nil {
		ok := met(r.Ratio)
		r.Met = &ok
	}
	return r
}

func alone(measure, unit string, ours float64, goal string, met func(ours float64) bool) Row {
	r := Row{Measure: measure, Unit: unit, Ours: ours, Goal: goal}
	if met != nil {
		ok := met(ours)
		r.Met = &ok
	}
	return r
}

func atMost(limit float64) func(float64) bool  { return func(v float64) bool { return v <= limit } }
func atLeast(limit float64) func(float64) bool { return func(v float64) bool { return v >= limit } }

// Table prints rows for a person.
func Table(rows []Row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "MEASURE\tOURS\tOTHER\tTHEIRS\tRATIO\tGOAL\tMET\tTURNS\tNOTE")
	for _, r := range rows {
		if r.Skipped != "" {
			fmt.Fprintf(w, "%s\t\t\t\t\t\tskipped\t\t%s\n", r.Measure, strings.ReplaceAll(r.Skipped, "\n", "; "))
			continue
		}
		theirs, ratio, met := "", "", ""
		if r.Other != "" {
			theirs, ratio = figure(r.Theirs, r.Unit), fmt.Sprintf("%.2f", r.Ratio)
		}
		if r.Met != nil {
			met = map[bool]string{true: "yes", false: "NO"}[*r.Met]
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", r.Measure, figure(r.Ours, r.Unit), r.Other, theirs, ratio, r.Goal, met, r.Turns, r.Note)
	}
	_ = w.Flush() // into memory
	return b.String()
}

func figure(v float64, unit string) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f %s", v, unit)
	case v >= 10:
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.2f %s", v, unit)
}
