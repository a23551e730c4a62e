package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"unicode"
)

// checkLogMessages wants slog messages that are constant and begin in lower case; what varies goes into attributes.
func checkLogMessages(t *Tree) []Violation {
	return t.eachCode("log-messages", func(f *File) []Violation {
		var vs []Violation
		ast.Inspect(f.AST, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if msg := logMessage(call); msg != nil {
				if problem := judgeMessage(msg); problem != "" {
					vs = append(vs, Violation{Line: t.Line(call.Pos()), Message: problem})
				}
			}
			return true
		})
		return vs
	})
}

// logMessage returns the message argument if the call looks like slog: a level method of something called log.
func logMessage(call *ast.CallExpr) ast.Expr {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !isLogger(sel.X) {
		return nil
	}
	level, withContext := strings.CutSuffix(sel.Sel.Name, "Context")
	if !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, level) {
		return nil
	}
	at := 0
	if withContext {
		at = 1
	}
	if len(call.Args) <= at {
		return nil
	}
	return call.Args[at]
}

func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return slices.Contains([]string{"log", "slog", "logger"}, x.Name)
	case *ast.SelectorExpr:
		return slices.Contains([]string{"log", "logger", "Log", "Logger"}, x.Sel.Name)
	}
	return false
}

func judgeMessage(msg ast.Expr) string {
	switch m := msg.(type) {
	case *ast.BasicLit:
		text := []rune(strings.Trim(m.Value, "\"`"))
		if m.Kind == token.STRING && len(text) > 0 && unicode.IsUpper(text[0]) && (len(text) < 2 || unicode.IsLower(text[1])) {
			return fmt.Sprintf("log message %s begins in upper case", m.Value)
		}
		return ""
	case *ast.Ident:
		return "" // a name: a constant, or a parameter of a function that only passes it on
	}
	return "log message is put together at run time: use attributes"
}
