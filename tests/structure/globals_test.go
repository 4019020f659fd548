package structure

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"strings"
	"testing"
)

// TestNoInit: what a program does is read in its main, not found in its imports.
func TestNoInit(t *testing.T) {
	p := load(t)
	for _, s := range p.written(true) {
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: init() runs where nobody reads it; construct explicitly", p.fset.Position(f.Pos()))
			}
		}
	}
}

// TestNoMutableGlobals: outside package main a package-level variable is an
// error value or a table that nothing changes.
func TestNoMutableGlobals(t *testing.T) {
	p := load(t)
	for dir, files := range p.packages() {
		if files[0].file.Name.Name == "main" {
			continue
		}
		var asts []*ast.File
		for _, s := range files {
			asts = append(asts, s.file)
		}
		for _, fault := range mutations(p.fset, dir, asts) {
			t.Error(fault)
		}
	}
}

// mutations finds what changes a package-level variable: its own, or another
// package's. Types are resolved within the package only, which is enough to
// tell a local name from a global one.
func mutations(fset *token.FileSet, dir string, files []*ast.File) []string {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: hollow{}, Error: func(error) {}}
	// What is imported is unknown on purpose, so there are always errors.
	pkg, _ := config.Check(module+"/"+dir, fset, files, info)

	var faults []string
	fault := func(at ast.Node, what, name string) {
		faults = append(faults, fset.Position(at.Pos()).String()+": "+what+" the package-level variable "+name+"; hold it in a value that is constructed")
	}
	global := func(e ast.Expr) string {
		return globalName(info, pkg, e)
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if name := global(left); name != "" && n.Tok != token.DEFINE {
						fault(n, "assigns to", name)
					}
				}
			case *ast.IncDecStmt:
				if name := global(n.X); name != "" {
					fault(n, "changes", name)
				}
			case *ast.UnaryExpr:
				if name := global(n.X); name != "" && n.Op == token.AND {
					fault(n, "takes the address of", name)
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear" || f.Name == "copy") && len(n.Args) > 0 {
					if name := global(n.Args[0]); name != "" {
						fault(n, f.Name+"s from", name)
					}
				}
			}
			return true
		})
		for _, decl := range file.Decls {
			vars, ok := decl.(*ast.GenDecl)
			if !ok || vars.Tok != token.VAR {
				continue
			}
			for _, spec := range vars.Specs {
				v := spec.(*ast.ValueSpec)
				if kind := mutableType(v); kind != "" && v.Names[0].Name != "_" {
					fault(v, "a "+kind+" changes by use:", v.Names[0].Name)
				}
			}
		}
	}
	return faults
}

// globalName is the name of the package-level variable that an expression
// stores into, or nothing.
func globalName(info *types.Info, pkg *types.Package, e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.SelectorExpr:
			if base, ok := x.X.(*ast.Ident); ok {
				if name, ok := info.Uses[base].(*types.PkgName); ok {
					return name.Name() + "." + x.Sel.Name
				}
			}
			e = x.X
		case *ast.Ident:
			v, ok := info.Uses[x].(*types.Var)
			if ok && pkg != nil && v.Parent() == pkg.Scope() {
				return v.Name()
			}
			return ""
		default:
			return ""
		}
	}
}

// mutableType names a declared type that exists to be changed. A pool and a
// once-computed value hold no state that a caller can see.
func mutableType(v *ast.ValueSpec) string {
	if _, ok := v.Type.(*ast.ChanType); ok {
		return "channel"
	}
	selector, ok := v.Type.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if base, ok := selector.X.(*ast.Ident); ok && (base.Name == "atomic" || base.Name == "sync" && selector.Sel.Name != "Pool") {
		return base.Name + "." + selector.Sel.Name
	}
	return ""
}

// hollow imports every package as an empty one.
type hollow struct{}

func (hollow) Import(importPath string) (*types.Package, error) {
	name := path.Base(importPath)
	if strings.HasPrefix(name, "v") && len(name) <= 3 && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(importPath))
	}
	name = strings.TrimPrefix(name, "go-")
	pkg := types.NewPackage(importPath, name)
	pkg.MarkComplete()
	return pkg, nil
}

// TestMutationsAreFound attacks the rule itself.
func TestMutationsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		found bool
	}{
		"assigned":         {"var x = 1\nfunc f() { x = 2 }", true},
		"map entry":        {"var m = map[int]int{}\nfunc f() { m[1] = 2 }", true},
		"field":            {"var v struct{ a int }\nfunc f() { v.a++ }", true},
		"address":          {"var v int\nfunc f() *int { return &v }", true},
		"deleted":          {"var m = map[int]int{}\nfunc f() { delete(m, 1) }", true},
		"another's":        {"import \"net/http\"\nfunc f() { http.DefaultClient = nil }", true},
		"a lock":           {"import \"sync\"\nvar mu sync.Mutex", true},
		"a table":          {"var m = map[int]int{1: 2}\nfunc f() int { return m[1] }", false},
		"a local namesake": {"var x = 1\nfunc f() int { x := 2; x = 3; return x }", false},
		"a pool":           {"import \"sync\"\nvar p sync.Pool", false},
	} {
		t.Run(name, func(t *testing.T) {
			fset, file := parseText(t, "package p\n"+c.body+"\n")
			if got := mutations(fset, "p", []*ast.File{file}); (len(got) > 0) != c.found {
				t.Errorf("found %v, want a fault: %v", got, c.found)
			}
		})
	}
}
