package lint

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// environments returns what the helper's parameters stand for, one scope a caller, if name or help needs them; else
// one empty scope.
func (c *collector) environments(h helper, exprs ...ast.Expr) []scope {
	params := parameters(h.params)
	needed := slices.ContainsFunc(exprs, func(e ast.Expr) bool { return mentions(e, params) })
	if !needed {
		return []scope{{}}
	}
	var envs []scope
	for _, call := range c.callers(h.name) {
		env := scope{}
		for i, p := range params {
			if i < len(call.Args) {
				env[p] = call.Args[i]
			}
		}
		if n := len(params); variadic(h.params) && n <= len(call.Args) {
			env[params[n-1]] = &ast.CompositeLit{Elts: call.Args[n-1:]}
		}
		envs = append(envs, env)
	}
	if len(envs) == 0 {
		return []scope{{}}
	}
	return envs
}

func variadic(fields *ast.FieldList) bool {
	if len(fields.List) == 0 {
		return false
	}
	_, ok := fields.List[len(fields.List)-1].Type.(*ast.Ellipsis)
	return ok
}

func parameters(fields *ast.FieldList) []string {
	var names []string
	for _, field := range fields.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

func mentions(e ast.Expr, names []string) bool {
	found := false
	if e == nil {
		return false
	}
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && slices.Contains(names, id.Name) {
			found = true
		}
		return !found
	})
	return found
}

// callers returns the calls of a function or method of that name in the package.
func (c *collector) callers(name string) []*ast.CallExpr {
	var calls []*ast.CallExpr
	for _, f := range c.files {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isCallOf(call, name) {
				calls = append(calls, call)
			}
			return true
		})
	}
	return calls
}

func isCallOf(call *ast.CallExpr, name string) bool {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name == name
	case *ast.SelectorExpr:
		return fn.Sel.Name == name
	}
	return false
}

// text evaluates a constant expression; "" when it is not one.
func (c *collector) text(e ast.Expr, env scope) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return unquote(e)
		}
	case *ast.ParenExpr:
		return c.text(e.X, env)
	case *ast.Ident:
		return c.named(e.Name, env)
	case *ast.BinaryExpr:
		x, y := c.text(e.X, env), c.text(e.Y, env)
		if x != "" && y != "" {
			return x + y
		}
	case *ast.CallExpr:
		if strings.HasSuffix(callee(e), "BuildFQName") {
			return c.fullName(e.Args, env)
		}
	}
	return ""
}

func (c *collector) named(name string, env scope) string {
	if value, ok := env[name]; ok {
		return c.text(value, scope{})
	}
	if value, ok := c.constants[name]; ok {
		return c.text(value, scope{})
	}
	return ""
}

func (c *collector) fullName(args []ast.Expr, env scope) string {
	var parts []string
	for _, a := range args {
		if part := c.text(a, env); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "_")
}

// labels reads the label names of a declaration: a []string literal, or the variadic rest of a helper's call.
func (c *collector) labels(call *ast.CallExpr, env scope) []string {
	var names []string
	if call == nil {
		return nil
	}
	for _, arg := range call.Args {
		if id, ok := arg.(*ast.Ident); ok && env[id.Name] != nil {
			arg = env[id.Name]
		}
		lit, ok := arg.(*ast.CompositeLit)
		if !ok || optsKind(lit) != "" {
			continue
		}
		for _, e := range lit.Elts {
			if name := c.text(e, env); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}
