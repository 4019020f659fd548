package main

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/conformance/cases"
	"skep.dev/skep/tests/conformance/columns"
)

func TestMain(m *testing.M) {
	if code, done := roles(os.Args[1:]); done {
		os.Exit(code)
	}
	os.Exit(testlab.Run(m))
}

// TestConformanceExplicit runs the cases of the Unix socket through the explicit route of a
// guest (guest.md, G57).
func TestConformanceExplicit(t *testing.T) {
	list, err := columns.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases.All() {
		i := slices.IndexFunc(list, func(l columns.Case) bool { return l.ID == c.ID })
		if c.Later || i < 0 || !list[i].Places[columns.Explicit].Applies || !throughGuest(c.ID) {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			lab := testlab.New(t)
			testlab.Built(t, "skep-connector")
			b := &cases.Bench{
				T: t, Program: relayed(testlab.Built(t, "skep-init"), []string{testlab.Built(t, "skep-box")}), Dir: lab.Dir(),
				Host:  func(name string, to ...string) { lab.Host(name, to...) },
				Asked: func(name string) int { return lab.Asked(name, "A") + lab.Asked(name, "AAAA") },
			}
			b.Serve()
			c.Run(b)
		})
	}
}

// TestConformance runs every case by its number against the built skep-box.
func TestConformance(t *testing.T) {
	for _, c := range cases.All() {
		t.Run(c.ID, func(t *testing.T) {
			if c.Later {
				t.Skipf("%s: for a later release", c.What)
			}
			lab := testlab.New(t)
			testlab.Built(t, "skep-connector")
			b := &cases.Bench{
				T: t, Program: []string{testlab.Built(t, "skep-box")}, Dir: lab.Dir(),
				Host:  func(name string, to ...string) { lab.Host(name, to...) },
				Asked: func(name string) int { return lab.Asked(name, "A") + lab.Asked(name, "AAAA") },
			}
			b.Serve()
			c.Run(b)
		})
	}
}

// The driver counts what it ran, and nothing that fails or was not run as passed.
func TestDriver(t *testing.T) {
	testlab.New(t)
	box := testlab.Built(t, "skep-box")
	var out strings.Builder
	if failures, err := run([]string{"-json", "-columns", "socket", "-run", "^(BC-1|BU-3|BH-1)$", "/usr/bin/env", box}, &out); failures != 0 || err != nil {
		t.Errorf("%d failed, %v", failures, err)
	}
	var table []row
	if err := json.Unmarshal([]byte(out.String()), &table); err != nil {
		t.Fatal(err)
	}
	if n := counts(table); len(table) != 3 || n[passed] != 2 || n[excluded] != 1 {
		t.Errorf("%v", table)
	}
	for _, c := range cases.All() {
		switch {
		case c.ID == "BC-24" && one(c, []string{box}).word != skipped: // it has no names to give
			t.Errorf("%s was not skipped", c.ID)
		case c.ID == "BC-4" && one(c, []string{"/bin/false"}).word != failed:
			t.Errorf("%s passed without a boundary", c.ID)
		}
	}
	for _, bad := range [][]string{{"-run", "("}, {"-columns", "sideways"}} {
		if _, err := run(bad, io.Discard); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestTable: the worst of several tests stands, a subtest of the route before its test, and
// nothing that did not run has passed.
func TestTable(t *testing.T) {
	whole := columns.Test{Module: "guest", Package: "start", Name: "TestBG1BothRoutes"}
	sub, other := whole, columns.Test{Module: "guest", Package: "start", Name: "TestBG1Guest"}
	sub.Name += "/tun"
	results := map[columns.Test]*result{whole: {word: passed}, sub: {word: skipped, lines: []string{"no device"}}, other: {word: passed}}
	if o := of([]columns.Test{whole, other}, results, columns.Tun); o.State != skipped || o.Reason != "no device" {
		t.Errorf("%+v", o)
	}
	if o := of([]columns.Test{whole}, results, columns.Explicit); o.State != passed {
		t.Errorf("%+v", o)
	}
	if o := of(nil, results, columns.Tun); o.State != "" {
		t.Errorf("%+v", o)
	}
	var r result
	r.event("output", "    file_test.go:12: why it is so\n")
	r.event("fail", "")
	if o := (outcome{State: passed}).and(&r); o.State != failed || o.Reason != "why it is so" {
		t.Errorf("%+v", o)
	}
	var out strings.Builder
	writeText(&out, []row{{ID: "BG-1", What: "x", Columns: map[columns.Column]outcome{columns.Tun: {State: skipped, Reason: "no device"}}}}, []columns.Column{columns.Tun})
	if !strings.Contains(out.String(), "tun, skipped: no device\n    BG-1\n") || !strings.Contains(out.String(), "0 passed, 0 failed, 1 skipped") {
		t.Errorf("%s", out.String())
	}
}
