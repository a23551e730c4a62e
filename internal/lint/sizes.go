package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"slices"
)

// The limits of the house, in lines. A function is measured between its braces.
const (
	functionStop   = 80
	functionP90    = 35
	functionMedian = 8
	fileStop       = 500
)

// span is one function and the number of lines between its braces.
type span struct {
	name  string
	line  int
	lines int
}

func functions(t *Tree, f *File) []span {
	var spans []span
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		lines := t.Line(fn.Body.Rbrace) - t.Line(fn.Body.Lbrace) - 1
		if f.Test() {
			lines -= tables(t, fn.Body)
		}
		spans = append(spans, span{fn.Name.Name, t.Line(fn.Pos()), max(lines, 1)})
	}
	return spans
}

// tables counts the lines of the outermost composite literals: the table of a table test is data, however long it is.
func tables(t *Tree, body *ast.BlockStmt) int {
	lines := 0
	ast.Inspect(body, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if ok {
			lines += t.Line(lit.Rbrace) - t.Line(lit.Lbrace)
		}
		return !ok
	})
	return lines
}

func checkFunctionLength(t *Tree) []Violation {
	return collect("function-length", t.Go(), func(f *File) []Violation {
		var vs []Violation
		for _, s := range functions(t, f) {
			if s.lines > functionStop {
				vs = append(vs, Violation{Line: s.line, Message: fmt.Sprintf("%s has %d lines, stop is %d", s.name, s.lines, functionStop)})
			}
		}
		return vs
	})
}

// checkFunctionMedian judges what ships, all packages together. Its place is the longest function, the first to cut.
func checkFunctionMedian(t *Tree) []Violation {
	var lines []int
	var longest span
	var where string
	for _, f := range t.Code() {
		for _, s := range functions(t, f) {
			lines = append(lines, s.lines)
			if s.lines > longest.lines {
				longest, where = s, f.Path
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(lines)
	median, p90 := lines[len(lines)/2], lines[len(lines)*9/10]
	if median <= functionMedian && p90 <= functionP90 {
		return nil
	}
	return []Violation{{Rule: "function-median", Path: where, Line: longest.line, Message: fmt.Sprintf(
		"functions have a median of %d lines (at most %d) and a p90 of %d (at most %d)", median, functionMedian, p90, functionP90)}}
}

func checkFileLength(t *Tree) []Violation {
	return collect("file-length", t.Go(), func(f *File) []Violation {
		if lines := bytes.Count(f.Data, []byte("\n")); lines > fileStop {
			return []Violation{{Line: fileStop + 1, Message: fmt.Sprintf("%d lines, stop is %d", lines, fileStop)}}
		}
		return nil
	})
}
