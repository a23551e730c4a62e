package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// Metric is one metric as the source declares it.
type Metric struct {
	Package string // the prefix it owes: the package, or the directory of a command
	Name    string // "" when it is not a constant
	Help    string
	Type    string // counter, gauge, histogram, summary
	Labels  []string
	Path    string
	Line    int
}

// Metrics finds the metrics of the tree: prometheus.…Opts literals and prometheus.NewDesc calls. Names are followed
// through constants and through one helper function that passes them on; what cannot be followed has no Name.
func Metrics(t *Tree) []Metric {
	byDir := map[string][]*File{}
	for _, f := range t.Code() {
		byDir[f.Dir()] = append(byDir[f.Dir()], f)
	}
	var all []Metric
	for _, files := range byDir {
		c := newCollector(t, files)
		for _, f := range files {
			all = append(all, c.file(f)...)
		}
	}
	slices.SortFunc(all, func(a, b Metric) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path))
	})
	return all
}

// collector reads the metrics of one package.
type collector struct {
	tree      *Tree
	files     []*File
	constants scope
	calls     map[*ast.CompositeLit]*ast.CallExpr // the call whose argument an options literal is
}

// scope maps names to their constant text.
type scope map[string]ast.Expr

func newCollector(t *Tree, files []*File) *collector {
	c := &collector{tree: t, files: files, constants: scope{}, calls: map[*ast.CompositeLit]*ast.CallExpr{}}
	for _, f := range files {
		for _, d := range f.AST.Decls {
			if gen, ok := d.(*ast.GenDecl); ok && gen.Tok == token.CONST {
				c.constants.declare(gen)
			}
		}
	}
	return c
}

func (s scope) declare(gen *ast.GenDecl) {
	for _, spec := range gen.Specs {
		v := spec.(*ast.ValueSpec)
		for i, value := range v.Values {
			s[v.Names[i].Name] = value
		}
	}
}

// file walks the functions of f, since a name may be a parameter of the function around it.
func (c *collector) file(f *File) []Metric {
	var all []Metric
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		c.walk(fn.Body, helper{name: fn.Name.Name, params: fn.Type.Params}, func(n ast.Node, h helper) {
			for _, m := range c.node(n, h) {
				m.Package, m.Path, m.Line = owner(f), f.Path, c.tree.Line(n.Pos())
				all = append(all, m)
			}
		})
	}
	return all
}

// helper is the function around a metric: the callers' arguments stand for its parameters.
type helper struct {
	name   string
	params *ast.FieldList
}

// walk calls visit with each node and the innermost named function around it: a declared one, or name := func(…).
func (c *collector) walk(body ast.Node, h helper, visit func(ast.Node, helper)) {
	ast.Inspect(body, func(n ast.Node) bool {
		if assign, ok := n.(*ast.AssignStmt); ok && len(assign.Lhs) == 1 {
			name, isName := assign.Lhs[0].(*ast.Ident)
			lit, isFunc := assign.Rhs[0].(*ast.FuncLit)
			if isName && isFunc {
				c.walk(lit.Body, helper{name.Name, lit.Type.Params}, visit)
				return false
			}
		}
		if n != nil {
			visit(n, h)
		}
		return true
	})
}

// node returns the metrics that n declares: several when n lies in a helper with several callers. It sees a call
// before its arguments, so it can remember which call an options literal belongs to: the labels are beside it.
func (c *collector) node(n ast.Node, h helper) []Metric {
	switch n := n.(type) {
	case *ast.CallExpr:
		for _, arg := range n.Args {
			if lit, ok := arg.(*ast.CompositeLit); ok {
				c.calls[lit] = n
			}
		}
		if callee(n) == "prometheus.NewDesc" && len(n.Args) >= 2 {
			return c.metrics("desc", n.Args[0], n.Args[1], n, h)
		}
	case *ast.CompositeLit:
		if kind := optsKind(n); kind != "" {
			name, help := options(n)
			return c.metrics(kind, name, help, c.calls[n], h)
		}
	}
	return nil
}

func (c *collector) metrics(kind string, name, help ast.Expr, call *ast.CallExpr, h helper) []Metric {
	var all []Metric
	for _, env := range c.environments(h, name, help) {
		all = append(all, Metric{Name: c.text(name, env), Help: c.text(help, env), Type: kind, Labels: c.labels(call, env)})
	}
	return all
}

func optsKind(lit *ast.CompositeLit) string {
	sel, ok := lit.Type.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if kind, isOpts := strings.CutSuffix(sel.Sel.Name, "Opts"); isOpts && slices.Contains([]string{"Counter", "Gauge", "Histogram", "Summary"}, kind) {
		return strings.ToLower(kind)
	}
	return ""
}

// options joins Namespace, Subsystem and Name as the client does.
func options(lit *ast.CompositeLit) (name, help ast.Expr) {
	fields := map[string]ast.Expr{}
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			fields[fmt.Sprint(kv.Key)] = kv.Value
		}
	}
	name = fields["Name"]
	for _, part := range []string{"Subsystem", "Namespace"} {
		if fields[part] != nil && name != nil {
			name = join(fields[part], name)
		}
	}
	return name, fields["Help"]
}

func join(prefix, name ast.Expr) ast.Expr {
	underscore := &ast.BasicLit{Kind: token.STRING, Value: `"_"`}
	return &ast.BinaryExpr{Op: token.ADD, X: &ast.BinaryExpr{Op: token.ADD, X: prefix, Y: underscore}, Y: name}
}
