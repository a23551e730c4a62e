package lint

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// runbookPath is the page with one heading an alert.
const runbookPath = "docs/operations.md"

// checkRunbook compares the alerts of deploy/prometheus with the headings of the runbook, both ways: an alert without a
// page helps nobody, a page without an alert is never opened.
func checkRunbook(t *Tree) []Violation {
	alerts := Alerts(t)
	headings := runbookHeadings(t)
	var vs []Violation
	for name, at := range alerts {
		if _, ok := headings[name]; !ok {
			at.Message = fmt.Sprintf("alert %s has no heading \"### %s\" in %s", name, name, runbookPath)
			vs = append(vs, at)
		}
	}
	for name, at := range headings {
		if _, ok := alerts[name]; !ok {
			at.Message = fmt.Sprintf("%s is no alert of deploy/prometheus", name)
			vs = append(vs, at)
		}
	}
	return append(vs, incomplete(t.File(runbookPath), headings)...)
}

// incomplete finds sections that leave one of the three questions of a woken person open.
func incomplete(f *File, headings map[string]Violation) []Violation {
	var vs []Violation
	for name, at := range headings {
		_, section, _ := strings.Cut(string(f.Data), "\n### "+name)
		section, _, _ = strings.Cut(section, "\n#")
		for _, question := range []string{"**Means.**", "**Look.**", "**Do.**"} {
			if !strings.Contains(section, question) {
				at.Message = fmt.Sprintf("%s does not say %s", name, question)
				vs = append(vs, at)
				break
			}
		}
	}
	return vs
}

// Alerts returns the alerting rules of deploy/prometheus by name. Unit tests of rules (*_test.yml) name alerts without
// defining them and are left out.
func Alerts(t *Tree) map[string]Violation {
	alert := regexp.MustCompile(`^\s*-?\s*alert:\s*["']?([A-Za-z]\w*)`)
	found := map[string]Violation{}
	for _, f := range t.Files {
		if !within(f.Path, "deploy/prometheus") || !slices.Contains([]string{".yml", ".yaml"}, path.Ext(f.Path)) ||
			strings.Contains(f.Path, "test") {
			continue
		}
		for i, line := range bytes.Split(f.Data, []byte("\n")) {
			if m := alert.FindSubmatch(line); m != nil {
				found[string(m[1])] = Violation{Rule: "runbook", Path: f.Path, Line: i + 1}
			}
		}
	}
	return found
}

// runbookHeadings returns the headings below "## Alerts" that look like an alert's name: one CamelCase word.
func runbookHeadings(t *Tree) map[string]Violation {
	found := map[string]Violation{}
	f := t.File(runbookPath)
	if f == nil {
		return found
	}
	heading := regexp.MustCompile(`^### ([A-Z][a-z0-9]+[A-Z]\w*)\s*(<!--.*)?$`)
	inAlerts := false
	for i, line := range strings.Split(string(f.Data), "\n") {
		if strings.HasPrefix(line, "## ") {
			inAlerts = line == "## Alerts"
		}
		if m := heading.FindStringSubmatch(line); inAlerts && m != nil {
			found[m[1]] = Violation{Rule: "runbook", Path: f.Path, Line: i + 1}
		}
	}
	return found
}
