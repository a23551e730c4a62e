package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
)

// headerNames returns the Kafka header names that the code mentions, each with one place.
func headerNames(t *Tree) map[string]string {
	name := regexp.MustCompile(`^ce_[a-z]+$`)
	found := map[string]string{}
	for _, f := range t.Code() {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && name.MatchString(unquote(lit)) {
				found[unquote(lit)] = fmt.Sprintf("%s:%d", f.Path, t.Line(lit.Pos()))
			}
			return true
		})
	}
	return found
}
