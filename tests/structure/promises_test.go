package structure

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testNames is every test, fuzz target and example of the tree, and every C
// test function of the warden.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, s := range load(t).sources {
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && s.test && f.Recv == nil && goTest.MatchString(f.Name.Name) {
				names[f.Name.Name] = true
			}
		}
	}
	for _, name := range files(t, "warden", ".c") {
		for _, match := range cTest.FindAllString(read(t, name), -1) {
			names[match] = true
		}
	}
	return names
}

var (
	goTest   = regexp.MustCompile(`\b(Test|Fuzz|Example|Benchmark)[A-Z0-9]\w*`)
	cTest    = regexp.MustCompile(`\btest_\w+`)
	testFile = regexp.MustCompile(`[\w./-]+\.(txt|txtar|c|sh|go)\b`)
	table    = regexp.MustCompile(`^\|\s*([^|]+?)\s*\|(.+)\|\s*$`)
)

// row is one invariant as its area's document states it.
type row struct {
	document, id, text, tests string
}

func invariants(t *testing.T) []row {
	t.Helper()
	var rows []row
	for _, document := range files(t, "docs/invariants", ".md") {
		for _, line := range strings.Split(read(t, document), "\n") {
			match := table.FindStringSubmatch(line)
			if match == nil || match[1] == "id" || strings.Trim(match[1], "-: ") == "" {
				continue
			}
			cells := strings.Split(match[2], "|")
			rows = append(rows, row{document, strings.Trim(match[1], "`* "), strings.TrimSpace(cells[0]), cells[len(cells)-1]})
			if len(cells) != 3 {
				t.Errorf("%s: row %s has %d cells, want 4: id, what is never false, kept in, attacked by", document, match[1], len(cells)+1)
			}
		}
	}
	return rows
}

// TestInvariantsAreAttacked: each row names a test, and each test that it names
// exists.
func TestInvariantsAreAttacked(t *testing.T) {
	names := testNames(t)
	seen := map[string]string{}
	rows := invariants(t)
	for _, r := range rows {
		if other, twice := seen[r.id]; twice {
			t.Errorf("invariant %s stands in %s and in %s", r.id, other, r.document)
		}
		seen[r.id] = r.document
		found, missing := promised(r.tests, names)
		if len(found)+len(missing) == 0 {
			t.Errorf("%s: invariant %s names no test that attacks it", r.document, r.id)
		}
		for _, name := range missing {
			t.Errorf("%s: invariant %s is attacked by %s, which does not exist", r.document, r.id, name)
		}
	}
	t.Logf("measured: %d invariants", len(rows))
}

// TestRequirementsAreTested: a test that a requirement names exists.
func TestRequirementsAreTested(t *testing.T) {
	names := testNames(t)
	count := 0
	for _, document := range files(t, "docs/requirements", ".md") {
		for _, line := range strings.Split(read(t, document), "\n") {
			fields := strings.Split(line, " — ")
			if len(fields) < 4 {
				continue
			}
			count++
			_, missing := promised(fields[len(fields)-1], names)
			for _, name := range missing {
				t.Errorf("%s: %s is tested by %s, which does not exist", document, strings.Trim(fields[0], "-* `"), name)
			}
		}
	}
	t.Logf("measured: %d requirements", count)
}

// promised sorts the tests that a text names into those that exist and those
// that do not. A file counts where it stands, or by its name below tests/.
func promised(text string, names map[string]bool) (found, missing []string) {
	for _, name := range append(goTest.FindAllString(text, -1), cTest.FindAllString(testFile.ReplaceAllString(text, ""), -1)...) {
		if names[name] {
			found = append(found, name)
		} else {
			missing = append(missing, name)
		}
	}
	for _, name := range testFile.FindAllString(text, -1) {
		if exists(name) {
			found = append(found, name)
		} else {
			missing = append(missing, name)
		}
	}
	return found, missing
}

func TestPromisedIsFound(t *testing.T) {
	names := map[string]bool{"TestReal": true, "test_real": true}
	for name, c := range map[string]struct {
		text           string
		found, missing int
	}{
		"a test":            {"`TestReal`", 1, 0},
		"of a package":      {"ledger.TestReal/case", 1, 0},
		"a C test":          {"test_real", 1, 0},
		"no such test":      {"TestReal, TestUnreal", 1, 1},
		"a file":            {"tests/structure/tree_test.go", 1, 0},
		"a file by name":    {"tree_test.go", 1, 0},
		"no such file":      {"tests/attack/nothing.txt", 0, 1},
		"only fine words":   {"the integration suite", 0, 0},
		"a word like tests": {"Testing it", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if found, missing := promised(c.text, names); len(found) != c.found || len(missing) != c.missing {
				t.Errorf("found %v, missing %v", found, missing)
			}
		})
	}
}

func exists(name string) bool {
	if _, err := os.Stat(filepath.Join(root, name)); err == nil {
		return true
	}
	found := false
	_ = filepath.WalkDir(filepath.Join(root, "tests"), func(path string, _ fs.DirEntry, err error) error {
		found = found || err == nil && strings.HasSuffix(filepath.ToSlash(path), "/"+name)
		return err
	})
	return found
}

// TestInvariantsJoined: INVARIANTS.md carries every area's rows.
func TestInvariantsJoined(t *testing.T) {
	const begin, end = "<!-- joined from docs/invariants/ by make generate -->\n", "<!-- end -->\n"
	whole := read(t, "INVARIANTS.md")
	before, rest, ok := strings.Cut(whole, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("INVARIANTS.md lacks the lines %q and %q", begin, end)
	}
	var joined strings.Builder
	for _, document := range files(t, "docs/invariants", ".md") {
		joined.WriteString("\n" + demoted(read(t, document), strings.TrimSuffix(filepath.Base(document), ".md")))
	}
	compare(t, "INVARIANTS.md", before+begin+joined.String()+"\n"+end+after)
}

// demoted is an area's page as a section: its own title one level down, or one
// made of its name.
func demoted(page, area string) string {
	page = strings.TrimSpace(page)
	if title, rest, ok := strings.Cut(page, "\n"); ok && strings.HasPrefix(title, "#") {
		return "## " + strings.TrimLeft(title, "# ") + "\n" + rest + "\n"
	}
	return "## " + strings.ToUpper(area[:1]) + area[1:] + "\n\n" + page + "\n"
}

// TestDependenciesAreExplained: each module that the code imports has a line
// that says what it is for.
func TestDependenciesAreExplained(t *testing.T) {
	var modules []string
	for _, match := range regexp.MustCompile(`(?m)^\s+([\w.-]+\.[\w.-]+/\S+|[\w.-]+\.[\w.-]+/\S*) v`).FindAllStringSubmatch(read(t, "go.mod"), -1) {
		modules = append(modules, match[1])
	}
	// The longest module path first, so that a nested module is not taken for its parent.
	slices.SortFunc(modules, func(a, b string) int { return len(b) - len(a) })
	var said strings.Builder
	for _, document := range append(files(t, "docs/dependencies.d", ".md"), "docs/dependencies.md") {
		said.WriteString(read(t, document))
	}
	missing := map[string]string{}
	for _, p := range golist(t, "./...") {
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for _, name := range modules {
				if imported == name || strings.HasPrefix(imported, name+"/") {
					if !strings.Contains(said.String(), name) {
						missing[name] = p.ImportPath
					}
					break
				}
			}
		}
	}
	for name, user := range missing {
		t.Errorf("%s (imported by %s) is not in docs/dependencies.md or docs/dependencies.d/: say what it is for, and why it and not another", name, user)
	}
}

// files lists a folder's files of one kind, in order, nothing if it does not exist.
func files(t *testing.T, dir, kind string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() && strings.HasSuffix(path, kind) {
			rel, err := filepath.Rel(root, path)
			names = append(names, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
