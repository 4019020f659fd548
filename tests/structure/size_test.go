package structure

import (
	"go/ast"
	"path"
	"sort"
	"strings"
	"testing"
)

const (
	fileMost    = 700
	funcMost    = 100
	funcUsual   = 60 // the 95th percentile
	packageMost = 2000
	wardenMost  = 1500
)

func TestPackageComments(t *testing.T) {
	for dir, files := range load(t).packages() {
		text := strings.TrimSpace(comment(files))
		if text == "" {
			t.Errorf("%s has no package comment: state its laws", dir)
			continue
		}
		if len(strings.Fields(text)) < 8 {
			t.Errorf("%s: the package comment %q says nothing", dir, text)
		}
		var carriers []string
		for _, s := range files {
			if s.file.Doc != nil {
				carriers = append(carriers, s.path)
			}
		}
		if len(carriers) > 1 {
			t.Errorf("%s: the package comment stands in %v; one file states the laws", dir, carriers)
		}
	}
}

func TestFileLength(t *testing.T) {
	p := load(t)
	packages := p.packages()
	var lengths []int
	for _, s := range p.written(true) {
		n := lines(s.text)
		if !s.test {
			lengths = append(lengths, n)
		}
		if n > fileMost && excused(packages[s.dir]) == "" {
			t.Errorf("%s has %d lines, at most %d: split it by what it holds", s.path, n, fileMost)
		}
	}
	t.Logf("measured: %d files of code, median %d lines, 95th percentile %d (about 120 is usual)",
		len(lengths), percentile(lengths, 50), percentile(lengths, 95))
}

func TestFunctionLength(t *testing.T) {
	p := load(t)
	packages := p.packages()
	var lengths []int
	for _, s := range p.written(true) {
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			n := p.fset.Position(f.End()).Line - p.fset.Position(f.Pos()).Line + 1
			if !s.test {
				lengths = append(lengths, n)
			}
			if n > funcMost && excused(packages[s.dir]) == "" {
				t.Errorf("%s: %s has %d lines, at most %d", p.fset.Position(f.Pos()), f.Name.Name, n, funcMost)
			}
		}
	}
	usual := percentile(lengths, 95)
	t.Logf("measured: %d functions, median %d lines, 95th percentile %d (at most %d)", len(lengths), percentile(lengths, 50), usual, funcUsual)
	if usual > funcUsual {
		t.Errorf("the 95th percentile of function length is %d, at most %d", usual, funcUsual)
	}
}

func TestPackageLength(t *testing.T) {
	for dir, files := range load(t).packages() {
		n := 0
		for _, s := range files {
			n += lines(s.text)
		}
		if n > packageMost && excused(files) == "" {
			t.Errorf("%s has %d lines, over %d: split it, or say why not in a line \"Size: ...\" of its package comment", dir, n, packageMost)
		}
	}
}

// TestWardenLength: the one program that is not Go stays small enough to be read
// in an evening. Lines that are blank, comment or generated do not count.
func TestWardenLength(t *testing.T) {
	n := 0
	for _, name := range append(files(t, "warden", ".c"), files(t, "warden", ".h")...) {
		text := read(t, name)
		base := path.Base(name)
		if path.Dir(name) != "warden" || strings.Contains(base, "test") || strings.Contains(base, "fuzz") || strings.HasPrefix(text, "/* Written by warden/gen") {
			continue
		}
		for _, line := range strings.Split(text, "\n") {
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "/*") && !strings.HasPrefix(line, "*") {
				n++
			}
		}
	}
	t.Logf("measured: %d lines of C in the warden (at most %d)", n, wardenMost)
	if n > wardenMost {
		t.Errorf("warden/ has %d lines of code, at most %d: what Go can do outside of it stands outside of it", n, wardenMost)
	}
}

// TestProportions measures what is a matter of taste and prints what falls
// outside; it fails nothing.
func TestProportions(t *testing.T) {
	p := load(t)
	code, comments, tests := 0, 0, 0
	for dir, files := range p.packages() {
		here, said := 0, 0
		for _, s := range files {
			a, b := share(p, s)
			here, said = here+a, said+b
		}
		code, comments = code+here, comments+said
		if percent := said * 100 / max(here, 1); here > 150 && (percent < 10 || percent > 30) {
			t.Logf("outside: %s has %d %% comments (12 to 20 is usual)", dir, percent)
		}
	}
	for _, s := range p.written(true) {
		if s.test {
			a, _ := share(p, s)
			tests += a
		}
	}
	t.Logf("measured: %d lines of code, %d %% of them comments (12 to 20 is usual), %d lines of tests", code, comments*100/max(code, 1), tests)
}

// share counts a file's lines that are not blank, and those of them that only comment.
func share(p *parsed, s *source) (all, said int) {
	spoken := map[int]bool{}
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			for line := p.fset.Position(c.Pos()).Line; line <= p.fset.Position(c.End()).Line; line++ {
				spoken[line] = true
			}
		}
	}
	for i, line := range strings.Split(s.text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		all++
		if spoken[i+1] && (strings.HasPrefix(line, "//") || strings.HasPrefix(line, "/*") || !strings.ContainsAny(line, "{}();=")) {
			said++
		}
	}
	return all, said
}

func lines(text string) int { return strings.Count(text, "\n") }

// percentile is the nearest-rank percentile, zero of nothing.
func percentile(values []int, p int) int {
	if len(values) == 0 {
		return 0
	}
	sort.Ints(values)
	return values[min(len(values)*p/100, len(values)-1)]
}
