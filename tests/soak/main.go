// Command soak runs what needs hours: the kills at many more moments, ten thousand
// random trees, the waits that the suite turns by hand in their real length, and each
// fuzzer for ten minutes. Its last output is kept under docs/results/ with its commit.
//
// Its laws:
//   - Every step runs, also after one that failed, and the result names each.
//   - What ran shorter than the full time says so in the result.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// fuzzTime is what each fuzzer gets in a whole run.
const fuzzTime = 10 * time.Minute

// step is one thing that takes long.
type step struct {
	name string
	env  []string
	args []string // of go test
	// fuzz runs beside another fuzzer: each has one worker.
	fuzz bool
}

// result is how a step ended.
type result struct {
	step
	took time.Duration
	said string // how it ended, in one line
	err  error
	tail string // the last lines of one that failed
}

func run() error {
	only := flag.String("only", "", "run only the steps whose names match this pattern (a regular expression)")
	each := flag.Duration("fuzz", fuzzTime, "the time of each fuzzer")
	out := flag.String("out", filepath.Join("docs", "results", "soak.md"), "where the result is kept")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("read --only: %w", err)
	}
	fuzzers, err := fuzzSteps(*each)
	if err != nil {
		return err
	}
	begin := time.Now()
	var results []result
	for steps := range pairs(append(longSteps(), fuzzers...), pattern) {
		results = append(results, together(steps)...)
	}
	if len(results) == 0 {
		return fmt.Errorf("no step matches %q", *only)
	}
	var text bytes.Buffer
	report(&text, begin, *only, *each, results)
	if err := os.MkdirAll(filepath.Dir(*out), 0o755); err != nil {
		return fmt.Errorf("keep the result: %w", err)
	}
	if err := os.WriteFile(*out, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("keep the result: %w", err)
	}
	fmt.Printf("\n%s\nkept in %s\n", text.String(), *out)
	var failed error
	for _, r := range results {
		if r.err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.name, r.err))
		}
	}
	return failed
}

// longSteps are the tests that know a long form of themselves.
func longSteps() []step {
	test := func(name, pkg, run string, env ...string) step {
		return step{name: name, env: env, args: []string{"-count=1", "-v", "-timeout", "3h", "-run", run, pkg}}
	}
	return []step{
		test("kill -9 at many moments, full disks, many cells", "./tests/crash", ".", "SKEP_SOAK=1"),
		test("ten thousand random trees: seen, difference, merge, undo", "./internal/snapshot/merge", "Tree|Property", "SKEP_SOAK_TREES=100"),
		test("1 GiB each way through a cell", "./tests/boundary", "TestBG17InACell", "SKEP_SOAK=1"),
		test("100,000 short tunnels beside 900 long ones", "./internal/box/listener", "TestNothingIsLeft", "SKEP_SOAK=1"),
		test("a day in small: 100,000 short flows beside 1,000 long ones, in a cell and by a Unix socket", "./tests/boundary", "LeaveNothing", "SKEP_SOAK=1"),
		test("a stream of ten minutes, a socket that is idle for five", "./tests/boundary", "TestN05|TestN06", "SKEP_SOAK=1"),
		test("real times", "./tests/soak", ".", "SKEP_SOAK=1"),
	}
}

// fuzzSteps are all fuzz targets of the tree.
func fuzzSteps(each time.Duration) ([]step, error) {
	found, err := exec.Command("git", "grep", "--untracked", "-Eo", "^func Fuzz[A-Za-z0-9_]+", "--", "*_test.go").Output()
	if err != nil {
		return nil, fmt.Errorf("find the fuzzers: %w", err)
	}
	var steps []step
	for line := range strings.Lines(string(found)) {
		file, function, _ := strings.Cut(strings.TrimSpace(line), ":func ")
		dir := filepath.Dir(file)
		steps = append(steps, step{
			name: "fuzz " + dir + " " + function, fuzz: true,
			args: []string{"-count=1", "-run", "^$", "-fuzz", "^" + function + "$", "-fuzztime", each.String(), "-parallel", "1", "-timeout", "0", "./" + dir},
		})
	}
	return steps, nil
}

// pairs yields the steps that match: two fuzzers at a time, anything else alone.
func pairs(steps []step, pattern *regexp.Regexp) func(yield func([]step) bool) {
	steps = slices.DeleteFunc(steps, func(s step) bool { return !pattern.MatchString(s.name) })
	return func(yield func([]step) bool) {
		for len(steps) > 0 {
			n := 1
			if len(steps) > 1 && steps[0].fuzz && steps[1].fuzz {
				n = 2
			}
			if !yield(steps[:n]) {
				return
			}
			steps = steps[n:]
		}
	}
}

// together runs steps side by side.
func together(steps []step) []result {
	results := make([]result, len(steps))
	var wait sync.WaitGroup
	for i, s := range steps {
		wait.Go(func() { results[i] = s.run() })
	}
	wait.Wait()
	return results
}

func (s step) run() result {
	fmt.Printf("== %s\n", s.name)
	c := exec.Command("go", append([]string{"test"}, s.args...)...)
	c.Env = append(os.Environ(), s.env...)
	begin := time.Now()
	raw, err := c.CombinedOutput()
	r := result{step: s, took: time.Since(begin).Round(time.Second), err: err}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	r.said = sum(s.fuzz, lines)
	if err != nil {
		r.tail = strings.Join(lines[max(0, len(lines)-failedLines):], "\n")
	}
	fmt.Printf("   %s: %s, %s\n", s.name, r.took, r.said)
	return r
}

// failedLines are kept of the output of a step that failed.
const failedLines = 60

// sum says in a line what go test printed.
func sum(fuzz bool, lines []string) string {
	if fuzz {
		for _, line := range slices.Backward(lines) {
			if strings.HasPrefix(line, "fuzz: elapsed") {
				return strings.TrimPrefix(line, "fuzz: ")
			}
		}
		return "no fuzzing was done"
	}
	count := map[string]int{}
	for _, line := range lines {
		for _, how := range []string{"PASS", "FAIL", "SKIP"} {
			if strings.HasPrefix(strings.TrimSpace(line), "--- "+how+":") {
				count[how]++
			}
		}
	}
	return fmt.Sprintf("%d passed, %d failed, %d skipped", count["PASS"], count["FAIL"], count["SKIP"])
}

// report writes the result as a page of docs/results.
func report(w io.Writer, begin time.Time, only string, each time.Duration, results []result) {
	fmt.Fprintf(w, "# Soak\n\n%s, commit %s, Linux %s, %d processors, %s in all.\n", begin.UTC().Format(time.DateOnly), commit(), kernel(),
		runtime.NumCPU(), time.Since(begin).Round(time.Second))
	if only != "" {
		fmt.Fprintf(w, "Not a whole run: only the steps that match `%s`.\n", only)
	}
	if each < fuzzTime {
		fmt.Fprintf(w, "Not a whole run: each fuzzer had %s instead of %s.\n", each, fuzzTime)
	}
	fmt.Fprint(w, "\n| step | took | result |\n|---|---|---|\n")
	for _, r := range results {
		said := r.said
		if r.err != nil {
			said = "**failed** (" + r.err.Error() + "): " + said
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", r.name, r.took, said)
	}
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(w, "\n## %s\n\n```\n%s\n```\n", r.name, r.tail)
		}
	}
}

func commit() string {
	head, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil || len(changed) > 0 {
		return strings.TrimSpace(string(head)) + " with changes"
	}
	return strings.TrimSpace(string(head))
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(release))
}
