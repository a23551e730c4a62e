package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func checkMetricNames(t *Tree) []Violation {
	var vs []Violation
	for _, m := range Metrics(t) {
		switch {
		case m.Name == "":
			vs = append(vs, m.violation("metric-names", "the metric's name is not a constant"))
		case !strings.HasPrefix(m.Name, m.Package+"_"):
			vs = append(vs, m.violation("metric-names", fmt.Sprintf("%s must begin with %s_", m.Name, m.Package)))
		}
	}
	return vs
}

func checkMetricLabels(t *Tree) []Violation {
	unbounded := []string{"device", "device_id", "bucket", "message_id", "position", "topic_name", "client_id"}
	var vs []Violation
	for _, m := range Metrics(t) {
		for _, l := range m.Labels {
			if slices.Contains(unbounded, l) {
				vs = append(vs, m.violation("metric-labels", fmt.Sprintf("%s has the unbounded label %s", m.Name, l)))
			}
		}
	}
	return vs
}

// checkMetricLint hands each metric to Prometheus' own linter, as a scrape would show it.
func checkMetricLint(t *Tree) []Violation {
	var vs []Violation
	for _, m := range Metrics(t) {
		if m.Name == "" {
			continue
		}
		problems, err := promlint.New(strings.NewReader(m.exposition())).Lint()
		if err != nil {
			vs = append(vs, m.violation("metric-lint", err.Error()))
		}
		for _, p := range problems {
			vs = append(vs, m.violation("metric-lint", p.Metric+": "+p.Text))
		}
	}
	return vs
}

func (m Metric) violation(rule, message string) Violation {
	return Violation{Rule: rule, Path: m.Path, Line: m.Line, Message: message}
}

// Kind returns the metric's type; a collector's own description has none in the source, so its name decides.
func (m Metric) Kind() string {
	if m.Type != "desc" {
		return m.Type
	}
	if strings.HasSuffix(m.Name, "_total") {
		return "counter"
	}
	return "gauge"
}

func (m Metric) exposition() string {
	var b strings.Builder
	if m.Help != "" {
		fmt.Fprintf(&b, "# HELP %s %s\n", m.Name, strings.ReplaceAll(m.Help, "\n", " "))
	}
	fmt.Fprintf(&b, "# TYPE %s %s\n", m.Name, m.Kind())
	switch m.Kind() {
	case "histogram":
		fmt.Fprintf(&b, "%s_bucket{le=\"+Inf\"} 1\n%s_sum 1\n%s_count 1\n", m.Name, m.Name, m.Name)
	case "summary":
		fmt.Fprintf(&b, "%s_sum 1\n%s_count 1\n", m.Name, m.Name)
	default:
		fmt.Fprintf(&b, "%s 1\n", m.Name)
	}
	return b.String()
}
