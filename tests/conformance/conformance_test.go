package main

import (
	"os"
	"testing"

	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/conformance/cases"
)

func TestMain(m *testing.M) { os.Exit(testlab.Run(m)) }

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
	if failed, err := run([]string{"-run", "^(BC-1|BU-3|BH-1)$", box}); failed != 0 || err != nil {
		t.Errorf("%d failed, %v", failed, err)
	}
	for _, c := range cases.All() {
		switch {
		case c.Later && one(c, nil).word != "later":
			t.Errorf("%s", c.ID)
		case c.ID == "BC-24" && one(c, []string{box}).word != "skipped": // it has no names to give
			t.Errorf("%s was not skipped", c.ID)
		case c.ID == "BC-4" && one(c, []string{"/bin/false"}).word != "FAILED":
			t.Errorf("%s passed without a boundary", c.ID)
		}
	}
	if _, err := run([]string{"-run", "("}); err == nil {
		t.Error("a pattern that is none is taken")
	}
}
