package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"skep.dev/skep/tests/conformance/columns"
)

// goTests runs tests of this repository, each once, and tells what came of each by its
// module, package and name, and of the subtests that a route has.
func goTests(root string, all []columns.Test) (map[columns.Test]*result, error) {
	byPackage := map[columns.Test][]string{}
	for _, t := range all {
		at := columns.Test{Module: t.Module, Package: t.Package}
		if !slices.Contains(byPackage[at], t.Name) {
			byPackage[at] = append(byPackage[at], t.Name)
		}
	}
	out := map[columns.Test]*result{}
	for at, names := range byPackage {
		if err := goTest(root, at, names, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// goTest runs some tests of one package.
func goTest(root string, at columns.Test, names []string, out map[columns.Test]*result) error {
	c := exec.Command("go", "test", "-json", "-count=1", "-run", "^("+strings.Join(names, "|")+")$", "./"+at.Package)
	c.Dir, c.Stderr = filepath.Join(root, at.Module), os.Stderr
	pipe, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return fmt.Errorf("run the tests of %s: %w", at.Package, err)
	}
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Test == "" {
			continue // of the build, or of the package
		}
		key := columns.Test{Module: at.Module, Package: at.Package, Name: e.Test}
		r := out[key]
		if r == nil {
			r = &result{}
			out[key] = r
		}
		r.event(e.Action, e.Output)
	}
	_ = c.Wait() // that a test has failed is in its result
	for _, name := range names {
		key := columns.Test{Module: at.Module, Package: at.Package, Name: name}
		if out[key] == nil {
			out[key] = &result{word: failed, lines: []string{"it did not run: see what go test says"}}
		}
	}
	return lines.Err()
}

// event is one of go test's.
func (r *result) event(action, output string) {
	switch action {
	case "pass":
		r.word = passed
	case "fail":
		r.word = failed
	case "skip":
		r.word = skipped
	case "output":
		said := regexp.MustCompile(`^\s*[\w.]+\.go:\d+: (.*)\n$`).FindStringSubmatch(output)
		if said != nil {
			r.lines = append(r.lines, said[1])
		}
	}
}

// of is what some tests say of a column together: the worst, and no pass without a test.
func of(tests []columns.Test, results map[columns.Test]*result, column columns.Column) outcome {
	var o outcome
	for _, t := range tests {
		o.Tests = append(o.Tests, t.Name)
		r := results[t]
		t.Name += "/" + string(column) // where a test runs by several routes
		if sub := results[t]; sub != nil {
			r = sub
		}
		o = o.and(r)
	}
	return o
}
