package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
)

// headerNames returns the Kafka header names that the code mentions, each with one place. The test kit for consumers
// invents some, to see whether a handler tolerates what it does not know.
func headerNames(t *Tree) map[string]string {
	name := regexp.MustCompile(`^ce_[a-z]+$`)
	found := map[string]string{}
	for _, f := range t.Code() {
		if within(f.Dir(), "devicestate/consumer/consumertest") {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && name.MatchString(unquote(lit)) {
				found[unquote(lit)] = fmt.Sprintf("%s:%d", f.Path, t.Line(lit.Pos()))
			}
			return true
		})
	}
	return found
}
