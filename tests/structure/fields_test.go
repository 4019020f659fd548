package structure

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fields are the lines of the field reports that docs/field-reports.md answers for.
var fields = strings.Fields("C02 C03 C04 C05 C07 C08 C09 C10 N05 N06 N07 N08 N09 N10 N11 N15 N16 N17 N18 N19 N20 N21 N22 N23 N25 N26 N27 N28 N29 N30")

// TestFieldReportsAreTested: each line has a row, whose tests exist, and one of them bears its id.
func TestFieldReportsAreTested(t *testing.T) {
	names := testNames(t)
	rows := regexp.MustCompile(`(?m)^\| ([A-Z]\d\d) \|.*\| (.*) \|$`).FindAllStringSubmatch(read(t, "docs/field-reports.md"), -1)
	var have []string
	for _, row := range rows {
		id, tests := row[1], strings.Split(row[2], ", ")
		have = append(have, id)
		for _, name := range tests {
			if !names[name] {
				t.Errorf("%s: there is no %s", id, name)
			}
		}
		if !slices.ContainsFunc(tests, func(name string) bool { return strings.Contains(name, id) }) {
			t.Errorf("%s: no test of %v bears the id", id, tests)
		}
	}
	if !slices.Equal(have, fields) {
		t.Errorf("the rows are %v, want %v", have, fields)
	}
}
