package lint

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

// promisesPath is the page with the numbered promises.
const promisesPath = "docs/architecture.md"

// checkPromises wants a test named after each promise (TestX_…_O3), and no test named after one that was never made.
func checkPromises(t *Tree) []Violation {
	promised := promises(t)
	tested := map[string]bool{}
	suffix := regexp.MustCompile(`_([NDOPC][0-9])(_|$)`)
	var vs []Violation
	for _, f := range t.Go() {
		for _, d := range f.AST.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !f.Test() || !strings.HasPrefix(fn.Name.Name, "Test") && !strings.HasPrefix(fn.Name.Name, "Fuzz") {
				continue
			}
			// Doubled, because matches do not overlap: _O2_O4 names both.
			for _, m := range suffix.FindAllStringSubmatch(strings.ReplaceAll(fn.Name.Name, "_", "__"), -1) {
				tested[m[1]] = true
				if _, ok := promised[m[1]]; !ok {
					vs = append(vs, Violation{Rule: "promises", Path: f.Path, Line: t.Line(fn.Pos()),
						Message: fmt.Sprintf("%s names the promise %s, which is not in %s", fn.Name.Name, m[1], promisesPath)})
				}
			}
		}
	}
	for id, line := range promised {
		if !tested[id] {
			vs = append(vs, Violation{Rule: "promises", Path: promisesPath, Line: line, Message: fmt.Sprintf("no test is named after promise %s", id)})
		}
	}
	return vs
}

// promises returns the numbered rows of the promise table and their lines.
func promises(t *Tree) map[string]int {
	found := map[string]int{}
	f := t.File(promisesPath)
	if f == nil {
		return found
	}
	row := regexp.MustCompile(`^\| ([NDOPC][0-9]) \|`)
	for i, line := range strings.Split(string(f.Data), "\n") {
		if m := row.FindStringSubmatch(line); m != nil {
			found[m[1]] = i + 1
		}
	}
	return found
}
