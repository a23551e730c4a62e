package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// checkPackageDocs asks for one package comment in each package, beginning as go doc expects it.
func checkPackageDocs(t *Tree) []Violation {
	byDir := map[string][]*File{}
	for _, f := range t.Code() {
		byDir[f.Dir()] = append(byDir[f.Dir()], f)
	}
	var vs []Violation
	for _, files := range byDir {
		if !slices.ContainsFunc(files, introduces) {
			vs = append(vs, Violation{Rule: "package-docs", Path: files[0].Path, Line: t.Line(files[0].AST.Name.Pos()),
				Message: fmt.Sprintf("package %s has no comment that begins %q", files[0].AST.Name.Name, opening(files[0]))})
		}
	}
	return vs
}

func introduces(f *File) bool { return strings.HasPrefix(f.AST.Doc.Text(), opening(f)) }

func opening(f *File) string {
	if f.Main() {
		return "Command "
	}
	return "Package " + f.AST.Name.Name + " "
}

// checkExportDocs asks for a comment on each exported name. Commands are left out: nothing can import them.
func checkExportDocs(t *Tree) []Violation {
	return t.eachCode("export-docs", func(f *File) []Violation {
		if f.Main() {
			return nil
		}
		var vs []Violation
		for _, d := range f.AST.Decls {
			vs = append(vs, undocumented(t, d)...)
		}
		return vs
	})
}

func undocumented(t *Tree, d ast.Decl) []Violation {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && receiverExported(d) && !selfEvident(d) {
			return judge(t, d.Name, d.Doc)
		}
	case *ast.GenDecl:
		return undocumentedSpecs(t, d)
	}
	return nil
}

// undocumentedSpecs lets a group of constants or variables share the comment of the group or one at the line's end;
// a type always has its own.
func undocumentedSpecs(t *Tree, d *ast.GenDecl) []Violation {
	var vs []Violation
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				vs = append(vs, judge(t, s.Name, first(s.Doc, loneDoc(d)))...)
			}
		case *ast.ValueSpec:
			if s.Names[0].IsExported() && first(s.Doc, s.Comment, d.Doc) == nil {
				vs = append(vs, missing(t, s.Names[0]))
			}
		}
	}
	return vs
}

// loneDoc returns the comment of a declaration without parentheses, where go/ast hangs it on the declaration.
func loneDoc(d *ast.GenDecl) *ast.CommentGroup {
	if d.Lparen == token.NoPos {
		return d.Doc
	}
	return nil
}

func judge(t *Tree, name *ast.Ident, doc *ast.CommentGroup) []Violation {
	if doc.Text() == "" {
		return []Violation{missing(t, name)}
	}
	text := doc.Text()
	for _, article := range []string{"A ", "An ", "The "} {
		text = strings.TrimPrefix(text, article)
	}
	if !strings.HasPrefix(text, name.Name) && !strings.HasPrefix(text, "Deprecated:") {
		return []Violation{{Line: t.Line(name.Pos()), Message: fmt.Sprintf("the comment of %s must begin with its name", name.Name)}}
	}
	return nil
}

// selfEvident spares the methods whose meaning a standard interface has fixed; a comment could only repeat it.
func selfEvident(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"Error", "String", "Unwrap", "MarshalText", "UnmarshalText"}, d.Name.Name)
}

func missing(t *Tree, name *ast.Ident) Violation {
	return Violation{Line: t.Line(name.Pos()), Message: fmt.Sprintf("exported %s has no comment", name.Name)}
}

func first(groups ...*ast.CommentGroup) *ast.CommentGroup {
	for _, g := range groups {
		if g.Text() != "" {
			return g
		}
	}
	return nil
}

func receiverExported(d *ast.FuncDecl) bool {
	name := receiver(d)
	return name == "" || ast.IsExported(name)
}

// receiver returns the name of the receiver's type, "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	expr := d.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}
