package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What go test -json prints of a package with subtests, a skip and a failure.
const mixed = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"pass","Package":"p","Test":"TestA/one"}
{"Action":"run","Package":"p","Test":"TestA/two"}
{"Action":"output","Package":"p","Test":"TestA/two","Output":"    a_test.go:9: broken\n"}
{"Action":"fail","Package":"p","Test":"TestA/two"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:4: no such kernel\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
{"Action":"skip","Package":"q"}
`

func keep(t *testing.T, lines string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kept.json")
	if err := os.WriteFile(name, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSum(t *testing.T) {
	for name, c := range map[string]struct {
		in, closing string
		fails       bool
	}{
		"subtests count, parents do not": {mixed, "1 passed, 1 failed, 1 skipped", true},
		"a package that did not build is a failure": {
			`{"ImportPath":"p","Action":"build-fail"}` + "\n" + `{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			"0 passed, 1 failed, 0 skipped", true,
		},
		"a package that panicked is a failure": {
			`{"Action":"run","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"fail","Package":"p"}`,
			"1 passed, 1 failed, 0 skipped", true,
		},
		"a parent that fails by itself is a failure": {
			`{"Action":"run","Package":"p","Test":"T/a"}` + "\n" + `{"Action":"pass","Package":"p","Test":"T/a"}` + "\n" + `{"Action":"fail","Package":"p","Test":"T"}`,
			"1 passed, 1 failed, 0 skipped", true,
		},
		"silence is a failure": {"", "0 passed, 1 failed, 0 skipped", true},
		"all well":             {`{"Action":"pass","Package":"p","Test":"T"}`, "1 passed, 0 failed, 0 skipped", false},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := run([]string{"sum", keep(t, c.in)}, nil, &out)
			if (err != nil) != c.fails {
				t.Errorf("error %v, want a failure: %v", err, c.fails)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if last := lines[len(lines)-1]; last != c.closing {
				t.Errorf("closing line %q, want %q", last, c.closing)
			}
		})
	}
}

func TestSumGivesReasonsAndFailures(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"sum", keep(t, mixed)}, nil, &out); err == nil {
		t.Error("a failed test gave no error")
	}
	for _, want := range []string{"skipped p TestB: b_test.go:4: no such kernel\n", "FAILED  p TestA/two\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

func TestFollowShowsFailuresAndKeepsAll(t *testing.T) {
	name := filepath.Join(t.TempDir(), "kept.json")
	var out strings.Builder
	if err := run([]string{"follow", name}, strings.NewReader(mixed), &out); err == nil {
		t.Error("a failed test gave no error")
	}
	if !strings.Contains(out.String(), "a_test.go:9: broken") {
		t.Errorf("the failure is not shown in:\n%s", out.String())
	}
	kept, err := os.ReadFile(name)
	if err != nil || string(kept) != mixed {
		t.Errorf("kept %q, %v", kept, err)
	}
}

func TestUnknownVerbIsRefused(t *testing.T) {
	if err := run([]string{"count"}, nil, &strings.Builder{}); err == nil {
		t.Error("an unknown verb was accepted")
	}
}
