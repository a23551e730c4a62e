package lint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// checkMetricsExist looks for our metrics in rules, dashboards and pages. A name counts as ours when it begins with the
// package that would own it; recording rules (with a colon) are made by the rules themselves.
func checkMetricsExist(t *Tree) []Violation {
	known := map[string]bool{}
	var prefixes []string
	for _, m := range Metrics(t) {
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			known[m.Name+suffix] = true
		}
		if !slices.Contains(prefixes, m.Package) {
			prefixes = append(prefixes, m.Package)
		}
	}
	if len(prefixes) == 0 {
		return nil
	}
	name := regexp.MustCompile(`(^|[^:\w/."-])((?:` + strings.Join(prefixes, "|") + `)_[a-z0-9_]+)([^:\w/.]|$)`)
	return collect("metrics-exist", t.observers(), func(f *File) []Violation {
		var vs []Violation
		for i, line := range strings.Split(string(f.Data), "\n") {
			for _, m := range name.FindAllStringSubmatch(line, -1) {
				if !known[m[2]] {
					vs = append(vs, Violation{Line: i + 1, Message: fmt.Sprintf("no code sets the metric %s", m[2])})
				}
			}
		}
		return vs
	})
}

// observers are the files that read metrics: rules (their unit tests too) and dashboards.
func (t *Tree) observers() []*File {
	return slices.DeleteFunc(slices.Clone(t.Files), func(f *File) bool {
		rules := within(f.Path, "deploy/prometheus") && slices.Contains([]string{".yml", ".yaml"}, path.Ext(f.Path))
		dashboards := within(f.Path, "deploy/grafana") && path.Ext(f.Path) == ".json"
		return !rules && !dashboards
	})
}
