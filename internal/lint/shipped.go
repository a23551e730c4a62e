package lint

import (
	"fmt"
	"slices"
	"strings"
)

// cargo is what must not travel in a command, neither directly nor through a package it imports.
type cargo struct {
	command   string
	forbidden []string
}

func cargoes() []cargo {
	never := []string{"testing", "net/http/httptest", "pgregory.net/rapid", "github.com/testcontainers/testcontainers-go",
		Module + "/internal/testenv", Module + "/internal/lint", Module + "/devicestate/consumer/consumertest"}
	production := append([]string{
		Module + "/internal/embedded", Module + "/internal/faultnet", "github.com/twmb/franz-go/pkg/kfake",
		"github.com/mochi-mqtt/server", "github.com/alicebob/miniredis"}, never...)
	return []cargo{
		{"cmd/ingest", production},
		{"cmd/relay", production},
		{"cmd/monitor", production},
		{"cmd/hub", never},
		{"loadtest", never},
	}
}

func checkShipped(t *Tree) []Violation {
	var vs []Violation
	for _, c := range cargoes() {
		for _, f := range closure(t, c.command) {
			vs = append(vs, c.violations(t, f)...)
		}
	}
	return vs
}

func (c cargo) violations(t *Tree, f *File) []Violation {
	var vs []Violation
	for _, spec := range f.AST.Imports {
		lib := importPath(spec)
		if slices.ContainsFunc(c.forbidden, func(p string) bool { return within(lib, p) }) {
			vs = append(vs, Violation{Rule: "shipped", Path: f.Path, Line: t.Line(spec.Pos()),
				Message: fmt.Sprintf("%s ends up in the binary of %s", lib, c.command)})
		}
	}
	return vs
}

// closure returns the files of command and of every package of this module that it imports, directly or not.
func closure(t *Tree, command string) []*File {
	byDir := map[string][]*File{}
	for _, f := range t.Code() {
		byDir[f.Dir()] = append(byDir[f.Dir()], f)
	}
	var files []*File
	todo, seen := []string{command}, map[string]bool{command: true}
	for len(todo) > 0 {
		dir := todo[0]
		todo = todo[1:]
		files = append(files, byDir[dir]...)
		for _, next := range imported(byDir[dir]) {
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	return files
}

// imported returns the directories of this module that the files import.
func imported(files []*File) []string {
	var dirs []string
	for _, f := range files {
		for _, spec := range f.AST.Imports {
			if dir, ours := strings.CutPrefix(importPath(spec), Module+"/"); ours {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}
