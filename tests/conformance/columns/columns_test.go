package columns_test

import (
	"slices"
	"testing"

	"skep.dev/skep/tests/conformance/cases"
	"skep.dev/skep/tests/conformance/columns"
)

const root = "../../.."

// ids of the page, by group.
func groups() map[string]int {
	return map[string]int{"BC": 51, "BH": 9, "BU": 11, "BT": 10, "BG": 28, "BI": 9, "BS": 14, "BX": 14, "GI": 10}
}

// TestEveryCaseThatAppliesHasATest: no case of a route is only written down.
func TestEveryCaseThatAppliesHasATest(t *testing.T) {
	list, err := columns.List()
	if err != nil {
		t.Fatal(err)
	}
	tests, err := columns.Find(root)
	if err != nil {
		t.Fatal(err)
	}
	driven := map[string]bool{}
	for _, c := range cases.All() {
		driven[c.ID] = !c.Later
	}
	n := 0
	for _, c := range list {
		for _, column := range columns.All() {
			p := c.Places[column]
			has := len(tests[column][c.ID]) > 0
			switch column {
			case columns.Socket:
				has = has || driven[c.ID]
			case columns.Explicit: // its driver runs the socket's cases through the relay
				has = has || driven[c.ID]
			case columns.Native, columns.Tun:
			}
			if p.Applies && !p.Awaited {
				n++
				if !has {
					t.Errorf("%s applies to %s and has no test", c.ID, column)
				}
			}
			if !p.Applies && has && (column == columns.Socket || column == columns.Tun) {
				t.Logf("%s has a test in %s: %v, and the list says that it does not apply: %s", c.ID, column, tests[column][c.ID], p.Why)
			}
		}
	}
	t.Logf("%d cases apply to a route", n)
}

// TestListIsThePages: every number of every group, once, and no other.
func TestListIsThePages(t *testing.T) {
	list, err := columns.List()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, c := range list {
		got[c.ID[:2]]++
	}
	for group, n := range groups() {
		if got[group] != n {
			t.Errorf("%s has %d cases, want %d", group, got[group], n)
		}
		delete(got, group)
	}
	if len(got) > 0 {
		t.Errorf("unknown groups %v", got)
	}
	for _, c := range cases.All() {
		if !slices.ContainsFunc(list, func(l columns.Case) bool { return l.ID == c.ID }) {
			t.Errorf("%s is not listed", c.ID)
		}
	}
}

func TestIDs(t *testing.T) {
	for name, want := range map[string][]string{"TestBG1BG23InACell": {"BG-1", "BG-23"}, "TestGI10Guest": {"GI-10"}, "TestB161RevokedFlowEnds": nil, "TestBox": nil, "TestBXNone": nil} {
		if got := columns.IDs(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
