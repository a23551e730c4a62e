package lint

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
)

// arrow is the place of one package in the architecture: what it may import of this module. Tests are free: they reach
// for whatever they must prove.
type arrow struct {
	dir string
	may []string
}

// arrows is the import drawing of docs/architecture.md, written down. Packages below a listed directory inherit its
// line and may import their siblings below it, except that devicestate/consumer has a line of its own.
func arrows() []arrow {
	daemon := []string{"internal/ops", "internal/schema"}
	return []arrow{
		{"devicestate", nil},
		{"outbox", []string{"internal/mutant"}},
		{"partitions", []string{"internal/mutant"}},
		{"devicestate/consumer", []string{"devicestate", "internal/mutant"}},
		{"ingest", []string{"devicestate", "outbox", "internal/mutant"}},

		{"internal/ops", nil},
		{"internal/schema", nil},
		{"internal/faultnet", nil},
		{"internal/lint", nil},
		{"internal/mutant", nil}, // false constants in every build but the tests' own
		{"deploy", nil},          // the settings of foreign servers, embedded
		{"internal/embedded", []string{"internal/schema", "deploy"}},
		{"internal/testenv", []string{"internal/embedded", "internal/schema", "internal/faultnet", "deploy"}},
		{"internal/monitor", []string{"devicestate", "devicestate/consumer"}},

		{"cmd/ingest", append([]string{"devicestate", "outbox", "ingest"}, daemon...)},
		{"cmd/relay", append([]string{"outbox", "partitions", "devicestate"}, daemon...)},
		{"cmd/monitor", append([]string{"devicestate", "devicestate/consumer", "internal/monitor"}, daemon...)},
		{"cmd/hub", append([]string{"devicestate", "devicestate/consumer", "outbox", "ingest", "partitions", "internal/monitor", "internal/embedded"}, daemon...)},
		{"loadtest/oracle", []string{"loadtest"}}, // shares no deciding code with the product
		{"loadtest", append([]string{"loadtest/oracle", "devicestate/consumer", "internal/embedded", "internal/faultnet"}, daemon...)},

		{"docs/examples", nil},
		{"tools", nil},
	}
}

// arrowOf finds the line that rules dir: its own, else that of the nearest parent.
func arrowOf(dir string) (arrow, bool) {
	all := arrows()
	for d := dir; d != "." && d != "/"; d = path.Dir(d) {
		if i := slices.IndexFunc(all, func(a arrow) bool { return a.dir == d }); i >= 0 {
			return all[i], true
		}
	}
	return arrow{}, false
}

// allows reports whether the ruled package may import target, a directory of this module.
func (a arrow) allows(target string) bool {
	home, ok := arrowOf(target)
	return ok && (home.dir == a.dir || slices.Contains(a.may, home.dir))
}

func checkArrows(t *Tree) []Violation {
	return collect("arrows", t.Go(), func(f *File) []Violation {
		a, ok := arrowOf(f.Dir())
		if !ok {
			return []Violation{{Line: t.Line(f.AST.Name.Pos()), Message: fmt.Sprintf(
				"package %s has no place in internal/lint/arrows.go", f.Dir())}}
		}
		if f.Test() {
			return nil // a test reaches for whatever it must prove; only what ships obeys the drawing
		}
		return a.violations(t, f)
	})
}

func (a arrow) violations(t *Tree, f *File) []Violation {
	var vs []Violation
	for _, spec := range f.AST.Imports {
		target, ours := strings.CutPrefix(importPath(spec), Module+"/")
		if ours && !a.allows(target) {
			vs = append(vs, Violation{Line: t.Line(spec.Pos()), Message: fmt.Sprintf("%s must not import %s", f.Dir(), target)})
		}
	}
	return vs
}

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the parser accepted it, so this cannot happen; the raw text matches no rule
	}
	return p
}
