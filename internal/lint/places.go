package lint

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

func checkNames(t *Tree) []Violation {
	drawers := []string{"util", "utils", "common", "helper", "helpers", "type", "types", "misc", "base", "shared", "lib", "stuff"}
	return collect("names", t.Go(), func(f *File) []Violation {
		var vs []Violation
		file := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.Path), ".go"), "_test")
		for _, name := range []string{f.AST.Name.Name, file} {
			if slices.Contains(drawers, strings.TrimSuffix(name, "_test")) {
				vs = append(vs, Violation{Line: t.Line(f.AST.Name.Pos()), Message: fmt.Sprintf("%q names a drawer, not an idea", name)})
			}
		}
		return vs
	})
}

func checkTopLevel(t *Tree) []Violation {
	known := []string{
		"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "go.mod", "go.sum", ".golangci.yml", ".ci", ".gitignore",
		".gitattributes", ".dockerignore", ".editorconfig", ".github",
		"cmd", "devicestate", "ingest", "outbox", "partitions", "loadtest", "deploy", "internal", "docs", "tools",
	}
	var vs []Violation
	reported := map[string]bool{}
	for _, f := range t.Files {
		entry, _, _ := strings.Cut(f.Path, "/")
		if !slices.Contains(known, entry) && !reported[entry] {
			reported[entry] = true
			vs = append(vs, Violation{Rule: "toplevel", Path: f.Path, Line: 1, Message: fmt.Sprintf("%s does not belong in the root", entry)})
		}
	}
	return vs
}

// checkMachinePaths looks at every text file. The pattern is put together so that this file does not break its rule.
func checkMachinePaths(t *Tree) []Violation {
	machine := regexp.MustCompile(`(^|[^\w./-])/` + `(root|work|home/\w+|Users/\w+)(/|\b)`)
	return collect("machine-paths", t.Files, func(f *File) []Violation {
		if !machine.Match(f.Data) {
			return nil
		}
		var vs []Violation
		for i, line := range bytes.Split(f.Data, []byte("\n")) {
			if m := machine.Find(line); m != nil {
				vs = append(vs, Violation{Line: i + 1, Message: fmt.Sprintf("path of one machine: %s", bytes.TrimSpace(m))})
			}
		}
		return vs
	})
}
