package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestContendersTakeTurns(t *testing.T) {
	var order []string
	turn := func(name string) func() (float64, error) {
		return func() (float64, error) { order = append(order, name); return float64(len(order)), nil }
	}
	a, b := &contender{name: "a", turn: turn("a")}, &contender{name: "b", turn: turn("b")}
	gone := &contender{name: "gone", skipped: "not installed"}
	if err := alternate(2, a, gone, b); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "abab"+"ba" {
		t.Errorf("order %q: the first round warms, and the first one changes", got)
	}
	if !slices.Equal(a.figures, []float64{3, 6}) || len(gone.figures) != 0 {
		t.Errorf("figures %v and %v", a.figures, gone.figures)
	}
	broken := &contender{name: "broken", turn: func() (float64, error) { return 0, errors.New("no") }}
	if err := alternate(1, broken); err == nil {
		t.Error("a turn that fails must fail the measure")
	}
}

func TestTableShowsWhatIsMissing(t *testing.T) {
	text := Table([]Row{
		beside("start", "ms", 5, "bwrap", 10, "<= 0.5", atMost(0.5)),
		alone("refusals", "/s", 10, ">= 50000", atLeast(50000)),
		{Measure: "flows", Skipped: "pasta: not found"},
	})
	for _, want := range []string{"0.50", "yes", "NO", "skipped", "pasta: not found"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
