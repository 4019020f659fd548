// Package structure tests the tree itself: where a file stands, how long it is,
// what a package may import, and that what the documents promise exists.
//
// Its laws:
//   - A rule stands here only if breaking it can be seen without judgement.
//   - A failure names the file, the rule, and what to do.
//   - Size and shape may be exceeded with a reason: a line "Size: ..." in the
//     package comment. Everything else has no exception.
//   - With -update the checked-in lists are rewritten instead of compared;
//     the change is then read like any other.
package structure

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	root   = "../.."
	guest  = "guest" // the second module, whose rules of shape are the same
	module = "skep.dev/skep"
)

var update = flag.Bool("update", false, "rewrite the checked-in lists")

// source is one Go file of this module.
type source struct {
	path      string // from the root, with slashes
	dir       string
	text      string
	file      *ast.File
	generated bool
	test      bool
}

// tree is every Go file of this module, parsed once.
var tree = sync.OnceValues(func() (*parsed, error) {
	p := &parsed{fset: token.NewFileSet()}
	err := walk(func(path string, entry fs.DirEntry) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(p.fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.sources = append(p.sources, &source{
			path: path, dir: filepath.ToSlash(filepath.Dir(path)), text: string(text), file: file,
			generated: ast.IsGenerated(file), test: strings.HasSuffix(path, "_test.go"),
		})
		return nil
	})
	return p, err
})

type parsed struct {
	fset    *token.FileSet
	sources []*source
}

func load(t *testing.T) *parsed {
	t.Helper()
	p, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// written is the hand-written files, with tests or without.
func (p *parsed) written(tests bool) []*source {
	var out []*source
	for _, s := range p.sources {
		if !s.generated && (tests || !s.test) {
			out = append(out, s)
		}
	}
	return out
}

// packages is the hand-written non-test files by folder.
func (p *parsed) packages() map[string][]*source {
	out := map[string][]*source{}
	for _, s := range p.written(false) {
		out[s.dir] = append(out[s.dir], s)
	}
	return out
}

// comment is a package's whole comment, from whichever files carry it.
func comment(files []*source) string {
	var out strings.Builder
	for _, s := range files {
		if s.file.Doc != nil {
			out.WriteString(s.file.Doc.Text())
		}
	}
	return out.String()
}

// excused is the reason that a package gives for its size, or nothing.
func excused(files []*source) string {
	_, reason, _ := strings.Cut(comment(files), "Size: ")
	return reason
}

// walk visits each file of the two modules that git would know.
func walk(visit func(path string, entry fs.DirEntry) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			name := entry.Name()
			_, other := os.Stat(filepath.Join(path, "go.mod"))
			if rel != "." && (name == ".git" || name == "testdata" || rel == "bin" || rel == "build" || other == nil && rel != guest) {
				return fs.SkipDir
			}
			return nil
		}
		return visit(rel, entry)
	})
}
