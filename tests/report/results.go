package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

// errFailed says that the tests ran and some failed; what failed was shown.
var errFailed = errors.New("tests failed")

// event is one line of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of a build event, where Package is empty
	Test       string
	Output     string
	Elapsed    float64
}

// id names a test, or with an empty test a package.
type id struct{ pkg, test string }

// results is what a run of any number of packages came to.
type results struct {
	verdict map[id]string // pass, fail or skip
	parent  map[id]bool   // tests that have subtests
	said    map[id][]string
	builds  map[string]bool // import paths that did not build
	stray   []string        // lines that were no JSON: the go command's own complaints
}

func newResults() *results {
	return &results{verdict: map[id]string{}, parent: map[id]bool{}, said: map[id][]string{}, builds: map[string]bool{}}
}

// read takes one stream in, calling seen for each event in order.
func (r *results) read(in io.Reader, seen func(event)) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action == "" {
			if text := strings.TrimSpace(lines.Text()); text != "" && !strings.HasPrefix(text, "go: downloading") {
				r.stray = append(r.stray, text)
			}
			continue
		}
		r.add(e)
		seen(e)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read test results: %w", err)
	}
	return nil
}

func (r *results) add(e event) {
	at := id{e.Package, e.Test}
	switch e.Action {
	case "output", "build-output":
		if e.Package == "" {
			at.pkg = e.ImportPath
		}
		r.said[at] = append(r.said[at], e.Output)
	case "build-fail":
		r.builds[e.ImportPath] = true
	case "run":
		if cut := strings.LastIndex(e.Test, "/"); cut > 0 {
			r.parent[id{e.Package, e.Test[:cut]}] = true
		}
	case "pass", "fail", "skip":
		// The worst of several runs stands: a fuzz target's seeds are run by go test too.
		if r.verdict[at] != "fail" {
			r.verdict[at] = e.Action
		}
	}
}

// count gives the passes, and the names of failures and skips in order. A
// package stands among the failures only where no test of it explains it.
func (r *results) count() (passed int, failed, skipped []id) {
	explained := map[id]bool{}
	for at, verdict := range r.verdict {
		if verdict != "fail" || at.test == "" {
			continue
		}
		explained[id{pkg: at.pkg}] = true
		for cut := strings.LastIndex(at.test, "/"); cut > 0; cut = strings.LastIndex(at.test[:cut], "/") {
			explained[id{at.pkg, at.test[:cut]}] = true
		}
	}
	for at, verdict := range r.verdict {
		switch {
		case verdict == "fail" && !explained[at]:
			failed = append(failed, at)
		case at.test == "" || r.parent[at]:
		case verdict == "pass":
			passed++
		case verdict == "skip":
			skipped = append(skipped, at)
		}
	}
	order(failed)
	order(skipped)
	return passed, failed, skipped
}

func order(ids []id) {
	sort.Slice(ids, func(i, j int) bool {
		if ids[i].pkg != ids[j].pkg {
			return ids[i].pkg < ids[j].pkg
		}
		return ids[i].test < ids[j].test
	})
}

// reason is what a test said that is not the go command's own framing.
func (r *results) reason(at id) string {
	var words []string
	for _, line := range r.said[at] {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		words = append(words, line)
	}
	if len(words) == 0 {
		return "no reason given"
	}
	return strings.Join(words, " ")
}

func (at id) String() string {
	if at.test == "" {
		return at.pkg
	}
	return at.pkg + " " + at.test
}

// follow shows a stream as it comes: a line for each package, and all that a
// failing test said.
func follow(in io.Reader, keep, out io.Writer) error {
	r := newResults()
	err := r.read(io.TeeReader(in, keep), func(e event) {
		switch {
		case e.Action == "build-output":
			fmt.Fprint(out, e.Output)
		case e.Action == "fail" && (e.Test != "" || len(r.said[id{e.Package, ""}]) > 0):
			fmt.Fprint(out, strings.Join(r.said[id{e.Package, e.Test}], ""))
		case e.Action == "pass" && e.Test == "":
			fmt.Fprintf(out, "ok    %6.1fs  %s\n", e.Elapsed, e.Package)
		}
	})
	if err != nil {
		return err
	}
	for _, line := range r.stray {
		fmt.Fprintln(out, line)
	}
	if _, failed, _ := r.count(); len(failed) > 0 {
		return errFailed
	}
	if len(r.verdict) == 0 {
		return errors.New("no test reported anything")
	}
	return nil
}

// sum counts what follow kept, and prints skips, failures and the closing line.
func sum(names []string, out io.Writer) error {
	var passed int
	var failed, skipped []string
	for _, name := range names {
		r, err := load(name)
		if err != nil {
			return err
		}
		ok, bad, not := r.count()
		passed += ok
		for _, at := range bad {
			failed = append(failed, at.String())
		}
		for _, at := range not {
			skipped = append(skipped, at.String()+": "+r.reason(at))
		}
		if len(r.verdict) == 0 {
			failed = append(failed, name+": nothing reported")
		}
	}
	for _, line := range skipped {
		fmt.Fprintln(out, "skipped", line)
	}
	for _, line := range failed {
		fmt.Fprintln(out, "FAILED ", line)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, len(failed), len(skipped))
	if len(failed) > 0 {
		return errFailed
	}
	return nil
}

func load(name string) (*results, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read test results: %w", err)
	}
	defer file.Close()
	r := newResults()
	return r, r.read(file, func(event) {})
}
