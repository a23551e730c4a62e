package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// checkExits finds the ways out that skip deferred work. Allowed: main functions, ops.Main, which is theirs, and
// testenv.Main, which go test prescribes.
func checkExits(t *Tree) []Violation {
	return t.eachCode("exits", func(f *File) []Violation {
		var vs []Violation
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && mayExit(f, fn) {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && exits(call) {
					vs = append(vs, Violation{Line: t.Line(call.Pos()), Message: fmt.Sprintf("%s outside main", callee(call))})
				}
				return true
			})
		}
		return vs
	})
}

func mayExit(f *File, fn *ast.FuncDecl) bool {
	switch f.Dir() {
	case "internal/ops", "internal/testenv":
		return fn.Name.Name == "Main"
	}
	return f.Main() && fn.Name.Name == "main"
}

func exits(call *ast.CallExpr) bool {
	name := callee(call)
	return name == "panic" || name == "os.Exit" || name == "syscall.Exit" ||
		strings.HasPrefix(name, "log.Fatal") || strings.HasPrefix(name, "log.Panic")
}

// callee returns the called name as written, "x.f" or "f"; "" when it is more than that.
func callee(call *ast.CallExpr) string {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		if x, ok := fn.X.(*ast.Ident); ok {
			return x.Name + "." + fn.Sel.Name
		}
	}
	return ""
}

func checkInit(t *Tree) []Violation {
	return collect("no-init", t.Go(), func(f *File) []Violation {
		var vs []Violation
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				vs = append(vs, Violation{Line: t.Line(fn.Pos()), Message: "init runs behind everybody's back"})
			}
		}
		return vs
	})
}

func checkPackageVariables(t *Tree) []Violation {
	return t.eachCode("package-variables", func(f *File) []Violation {
		var vs []Violation
		for _, d := range f.AST.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR || ofTests(f) {
				continue
			}
			for _, s := range gen.Specs {
				vs = append(vs, variable(t, gen, s.(*ast.ValueSpec))...)
			}
		}
		return vs
	})
}

// ofTests reports whether a package lives in test processes only: testenv keeps one set of servers a process, mutant one
// list of what is broken on purpose.
func ofTests(f *File) bool { return f.Dir() == "internal/testenv" || f.Dir() == "internal/mutant" }

// variable allows what is never written again: errors, compiled patterns and templates, instants, tables of names
// ([...]string), embedded files, and the assertion that a type implements an interface.
func variable(t *Tree, gen *ast.GenDecl, s *ast.ValueSpec) []Violation {
	if embedded(gen.Doc) || embedded(s.Doc) || len(s.Values) == len(s.Names) && !slices.ContainsFunc(s.Values, func(v ast.Expr) bool { return !frozen(v) }) {
		return nil
	}
	var vs []Violation
	for _, name := range s.Names {
		if name.Name != "_" {
			vs = append(vs, Violation{Line: t.Line(name.Pos()), Message: fmt.Sprintf("package variable %s", name.Name)})
		}
	}
	return vs
}

func frozen(value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.CallExpr:
		return slices.Contains([]string{"errors.New", "fmt.Errorf", "regexp.MustCompile", "template.Must", "redis.NewScript", "time.Date"}, callee(v))
	case *ast.CompositeLit:
		array, ok := v.Type.(*ast.ArrayType)
		return ok && array.Len != nil && fmt.Sprint(array.Elt) == "string"
	}
	return false
}

func embedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// checkGoroutines wants an errgroup, or a comment right above the go statement or at its end that says who
// waits for it.
func checkGoroutines(t *Tree) []Violation {
	return t.eachCode("goroutines", func(f *File) []Violation {
		commented := map[int]bool{}
		for _, g := range f.AST.Comments {
			commented[t.Line(g.End())] = true
		}
		var vs []Violation
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok && !commented[t.Line(g.End())] && !commented[t.Line(g.Pos())-1] {
				vs = append(vs, Violation{Line: t.Line(g.Pos()), Message: "go statement without a comment that says who waits for it"})
			}
			return true
		})
		return vs
	})
}
