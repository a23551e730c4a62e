package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// checkSQLTags looks at every string constant of queries.go (also relayqueries.go, queries_status.go): a statement carries its owner right
// after its first keyword, package.name, once.
func checkSQLTags(t *Tree) []Violation {
	tag := regexp.MustCompile(`^\s*[A-Z]+ /\* ([a-z]+)\.([a-z0-9_]+) \*/`)
	seen := map[string]bool{}
	return t.eachCode("sql-tags", func(f *File) []Violation {
		if !isQueries(f) {
			return nil
		}
		var vs []Violation
		for _, s := range statements(f) {
			m := tag.FindStringSubmatch(s.text)
			switch {
			case m == nil:
				vs = append(vs, Violation{Line: t.Line(s.pos), Message: fmt.Sprintf("%s has no tag after its first keyword", s.name)})
			case m[1] != owner(f):
				vs = append(vs, Violation{Line: t.Line(s.pos), Message: fmt.Sprintf("%s is tagged %s, not %s", s.name, m[1], owner(f))})
			case seen[m[1]+"."+m[2]]:
				vs = append(vs, Violation{Line: t.Line(s.pos), Message: fmt.Sprintf("%s repeats the tag %s.%s", s.name, m[1], m[2])})
			default:
				seen[m[1]+"."+m[2]] = true
			}
		}
		return vs
	})
}

// checkSQLHome finds statements that read or write rows outside queries.go. DDL is put together where it is planned.
func checkSQLHome(t *Tree) []Violation {
	statement := regexp.MustCompile(`^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|COPY|MERGE INTO)\s+\S+[\s\S]*(\bFROM\b|\bSET\b|\bVALUES\b|\bSELECT\b|\w\()`)
	return t.eachCode("sql-home", func(f *File) []Violation {
		if isQueries(f) || f.Dir() == "internal/lint" {
			return nil
		}
		var vs []Violation
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && statement.MatchString(unquote(lit)) {
				vs = append(vs, Violation{Line: t.Line(lit.Pos()), Message: "SQL outside queries.go"})
			}
			return true
		})
		return vs
	})
}

func isQueries(f *File) bool {
	name := path.Base(f.Path)
	return strings.HasSuffix(name, "queries.go") || strings.HasPrefix(name, "queries_")
}

// owner is the name that a package gives to its statements and metrics: its own, or a command's directory.
func owner(f *File) string {
	if f.Main() {
		return path.Base(f.Dir())
	}
	return f.AST.Name.Name
}

type statement struct {
	name string
	text string
	pos  token.Pos
}

// statements returns the string constants of a file that begin with a keyword; lists of columns are no statements.
func statements(f *File) []statement {
	var all []statement
	for _, d := range f.AST.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, s := range gen.Specs {
			all = append(all, texts(s.(*ast.ValueSpec))...)
		}
	}
	return all
}

func texts(s *ast.ValueSpec) []statement {
	var all []statement
	keyword := regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH|MERGE|COPY|LOCK|CREATE|ALTER|DROP|BEGIN|COMMIT|ROLLBACK|VALUES|TRUNCATE|select|insert|update|delete|with)\b`)
	for i, v := range s.Values {
		if text, ok := leading(v); ok && keyword.MatchString(text) {
			all = append(all, statement{s.Names[i].Name, text, s.Names[i].Pos()})
		}
	}
	return all
}

// leading returns the first literal of a concatenation, which is where the tag has to be.
func leading(v ast.Expr) (string, bool) {
	switch v := v.(type) {
	case *ast.BasicLit:
		return unquote(v), v.Kind == token.STRING
	case *ast.BinaryExpr:
		return leading(v.X)
	}
	return "", false
}

func unquote(lit *ast.BasicLit) string {
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return lit.Value
	}
	return text
}
