package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/internal/testenv"
)

// TestQueries_PrepareOnTheMigratedSchema: a statement that nobody has run yet is checked all the same.
func TestQueries_PrepareOnTheMigratedSchema(t *testing.T) {
	t.Parallel()
	conn := connect(t, testenv.Postgres(t))
	files, err := filepath.Glob("queries*.go")
	if err != nil {
		t.Fatal(err)
	}
	prepared := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			text, ok := spec.Values[0].(*ast.BasicLit)
			if !ok {
				return true
			}
			sql, err := strconv.Unquote(text.Value)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Prepare(t.Context(), spec.Names[0].Name, sql); err != nil {
				t.Errorf("%s: %v", spec.Names[0].Name, err)
			}
			prepared++
			return true
		})
	}
	if prepared < 25 {
		t.Errorf("only %d statements found", prepared)
	}
}
