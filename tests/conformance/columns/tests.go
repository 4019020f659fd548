package columns

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Test is a Go test that has ids in its name.
type Test struct {
	Module  string // directory of its go.mod, from the root
	Package string // directory, from Module
	Name    string
}

// Tests are the tests of each case in each column.
type Tests map[Column]map[string][]Test

// sockets is the package whose tests are about the Unix socket; what serves tunnels from
// inside counts with it.
const sockets = "tests/conformance"

// Find reads the names of all tests below root.
func Find(root string) (Tests, error) {
	found := Tests{}
	for _, c := range All() {
		found[c] = map[string][]Test{}
	}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if e.IsDir() && (rel == "bin" || rel == "build" || rel != "." && rel[0] == '.' || e.Name() == "testdata") {
			return fs.SkipDir
		}
		if e.IsDir() || !strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		names, err := testsIn(path)
		for _, name := range names {
			found.add(filepath.ToSlash(filepath.Dir(rel)), name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for tests: %w", err)
	}
	found.prefer()
	return found, nil
}

func testsIn(path string) (names []string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read tests: %w", err)
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
			names = append(names, fn.Name.Name)
		}
	}
	return names, nil
}

// IDs are the cases that a test's name names: TestBG1BG3InACell has BG-1 and BG-3.
func IDs(name string) (ids []string) {
	rest := strings.TrimPrefix(name, "Test")
	for id := regexp.MustCompile(`^(B[A-Z]|GI)([0-9]+)`); ; {
		m := id.FindStringSubmatch(rest)
		if m == nil {
			return ids
		}
		ids, rest = append(ids, m[1]+"-"+m[2]), rest[len(m[0]):]
	}
}

func (t Tests) add(dir, name string) {
	test := Test{Module: ".", Package: dir, Name: name}
	var in []Column
	if below, ok := strings.CutPrefix(dir, "guest/"); ok {
		test.Module, test.Package = "guest", below
		if !strings.HasSuffix(name, "Explicit") {
			in = append(in, Tun)
		}
		if strings.HasSuffix(name, "Explicit") || strings.HasSuffix(name, "BothRoutes") {
			in = append(in, Explicit)
		}
	} else if dir == sockets {
		in = []Column{Socket}
	} else {
		in = []Column{Native}
	}
	for _, c := range in {
		for _, id := range IDs(name) {
			t[c][id] = append(t[c][id], test)
		}
	}
}

// prefer leaves of a case's native tests those that drive the built programs, where there
// are any: the others show a part.
func (t Tests) prefer() {
	for id, all := range t[Native] {
		if whole := slices.DeleteFunc(slices.Clone(all), func(x Test) bool { return !strings.HasPrefix(x.Package, "tests/") }); len(whole) > 0 {
			t[Native][id] = whole
		}
	}
}
