package structure

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// floors is the order of the tree: a package imports only what stands on an
// earlier line. To add a package, put its path below internal/, or the
// first part of it, on the lowest line that its imports allow.
var floors = [][]string{
	{"flow", "name", "sys", "store", "strict", "escape", "h2", "build", "api"},
	{"right", "tunnel", "ledger", "handover", "lifeline", "forwarding", "place", "confine", "worker/proto", "client"},
	{"secret"},
	{"policy", "route", "budget", "approval", "sshagent", "credential", "profile", "bundle", "snapshot", "config"},
	{"boundary", "cell", "model", "mesh", "hub", "worker/serve"},
	{"dest", "daemon", "supervisor", "box"},
	{"launch"},
	{"cli"},
	{"console", "testlab"},                 // these may import anything below cmd, each other too
	{"cmd", "tests", "examples", "warden"}, // of the warden, the Go that generates and tests it
}

// place finds a package's part of the tree, the longest that the floors name,
// and its floor, -1 where it has none.
func place(importPath string) (part string, floor int) {
	part = strings.TrimPrefix(strings.TrimPrefix(importPath, module+"/"), "internal/")
	for {
		floor = slices.IndexFunc(floors, func(parts []string) bool { return slices.Contains(parts, part) })
		cut := strings.LastIndex(part, "/")
		if floor >= 0 || cut < 0 {
			return part, floor
		}
		part = part[:cut]
	}
}

// listed is what go list tells of a package.
type listed struct {
	ImportPath                         string
	Standard                           bool
	Imports, TestImports, XTestImports []string
}

func golist(t *testing.T, args ...string) []listed {
	t.Helper()
	command := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Standard,Imports,TestImports,XTestImports"}, args...)...)
	command.Dir = root
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, complaint.String())
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("read go list %v: %v", args, err)
		}
		packages = append(packages, p)
	}
}

func TestImportsRunDownward(t *testing.T) {
	for _, p := range golist(t, "./...") {
		for _, imported := range p.Imports {
			if fault := upward(p.ImportPath, imported); fault != "" {
				t.Error(fault)
			}
		}
	}
}

// upward says what is wrong with an import, if anything is.
func upward(from, to string) string {
	if to != module && !strings.HasPrefix(to, module+"/") {
		return ""
	}
	part, floor := place(from)
	other, below := place(to)
	switch {
	case floor < 0:
		return from + " stands on no floor: give it one in tests/structure/imports_test.go"
	case below < 0:
		return to + " stands on no floor: give it one in tests/structure/imports_test.go"
	case part == other: // nested in one part of the tree
		return ""
	case floor == below && (part == "console" || part == "testlab" || part == "tests"):
		return ""
	case floor == below:
		return from + " imports " + to + " on its own floor: declare a small interface where it is used, and construct both above"
	case floor < below:
		return from + " imports " + to + " from a higher floor: imports run downward only"
	}
	return ""
}

func TestUpwardIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		fault    bool
	}{
		"down":                {module + "/internal/ledger", module + "/internal/sys", false},
		"up":                  {module + "/internal/ledger", module + "/internal/cell", true},
		"beside":              {module + "/internal/policy", module + "/internal/route", true},
		"nested":              {module + "/internal/cell/native", module + "/internal/cell", false},
		"nested apart":        {module + "/internal/worker/serve", module + "/internal/worker/proto", false},
		"no floor":            {module + "/internal/util", module + "/internal/sys", true},
		"outside":             {module + "/internal/sys", "golang.org/x/sys/unix", false},
		"nothing imports cmd": {module + "/internal/cli", module + "/cmd/skep", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := upward(c.from, c.to); (got != "") != c.fault {
				t.Errorf("got %q, want a fault: %v", got, c.fault)
			}
		})
	}
}

// TestKernelDoor: internal/sys alone imports x/sys/unix, so that all that Skep
// asks of the kernel can be read in one folder.
func TestKernelDoor(t *testing.T) {
	for _, p := range golist(t, "./...") {
		part, _ := place(p.ImportPath)
		if part == "sys" || part == "api" { // what protoc-gen-go writes imports unsafe
			continue
		}
		for _, imported := range p.Imports {
			if imported == "golang.org/x/sys/unix" || imported == "unsafe" {
				t.Errorf("%s imports %s: the kernel is reached through internal/sys", p.ImportPath, imported)
			}
		}
	}
}

// notable is what of the standard library a trusted program's list names: what
// reaches a network, a process, or the memory.
var notable = []string{"crypto/tls", "debug/elf", "net", "net/http", "net/http/httputil", "net/http/pprof", "os/exec", "os/user", "plugin", "expvar", "html/template", "text/template"}

// TestProgramImports: what skepd, skep-worker, skep-box and skep-connector are made of is a list
// that is read when it changes.
func TestProgramImports(t *testing.T) {
	for _, program := range []string{"skepd", "skep-worker", "skep-box", "skep-connector"} {
		t.Run(program, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(root, "cmd", program)); err != nil {
				t.Skipf("skipped: cmd/%s does not exist yet", program)
			}
			var got strings.Builder
			got.WriteString("# What " + program + " is made of. Rewritten by make generate; read each change.\n")
			var names []string
			for _, p := range golist(t, "-deps", "./cmd/"+program) {
				if !p.Standard || slices.Contains(notable, p.ImportPath) {
					names = append(names, p.ImportPath)
				}
			}
			slices.Sort(names)
			got.WriteString(strings.Join(names, "\n") + "\n")
			compare(t, "tests/structure/imports/"+program+".txt", got.String())
		})
	}
}

// compare holds a checked-in file against what it should be; -update writes it.
func compare(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join(root, name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run make generate and read what it wrote", err)
	}
	if string(have) == want {
		return
	}
	before, after := strings.Split(string(have), "\n"), strings.Split(want, "\n")
	for _, line := range after {
		if !slices.Contains(before, line) {
			t.Errorf("%s lacks %q", name, line)
		}
	}
	for _, line := range before {
		if !slices.Contains(after, line) {
			t.Errorf("%s still has %q", name, line)
		}
	}
	t.Errorf("%s is out of date: run make generate and read the change", name)
}

func parseText(t *testing.T, text string) (*token.FileSet, *ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return fset, file
}
