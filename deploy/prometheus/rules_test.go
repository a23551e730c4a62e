// Package prometheus tests the rules of this folder: with promtool, and against the metrics that the daemons really have.
package prometheus

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v3"

	"github.com/hubstate/hubstate/ingest"
	"github.com/hubstate/hubstate/internal/monitor"
	"github.com/hubstate/hubstate/outbox"
	"github.com/hubstate/hubstate/partitions"
)

func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no promtool: run make setup")
		}
		t.Skip("no promtool")
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

func TestRules_FireWhenTheyMustAndOnlyThen(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "config", "prometheus.yml")
	promtool(t, "test", "rules", "rules_test.yml")
}

// catalogue is a Registerer that learns the names and labels of what is registered, also of vectors without a series.
type catalogue map[string][]string

var descPattern = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

func (c catalogue) Register(collector prometheus.Collector) error {
	ch := make(chan *prometheus.Desc)
	go func() { collector.Describe(ch); close(ch) }() // ends with the loop below
	for desc := range ch {
		if m := descPattern.FindStringSubmatch(desc.String()); m != nil {
			c[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })
		}
	}
	return nil
}
func (c catalogue) MustRegister(collectors ...prometheus.Collector) {
	for _, one := range collectors {
		_ = c.Register(one)
	}
}
func (c catalogue) Unregister(prometheus.Collector) bool { return false }

// ignored is a readiness condition that nobody asks.
type ignored struct{}

func (ignored) Set(error) {}

// everyMetric builds each part as its daemon does and asks what it registers.
func everyMetric(t *testing.T) catalogue {
	t.Helper()
	c := catalogue{"up": {"job", "instance"}}
	nowhere := func(context.Context) (*pgx.Conn, error) { return nil, os.ErrClosed }
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)

	cfg := monitor.DefaultConfig()
	cfg.KafkaBrokers, cfg.RedisURL = []string{"127.0.0.1:1"}, "redis://127.0.0.1:1"
	m, err := monitor.New(cfg, monitor.Outside{Log: slog.New(slog.DiscardHandler), Registerer: c, Database: pool, Reading: ignored{}, Serving: ignored{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.New(ingest.Config{MQTTURL: "mqtt://127.0.0.1:1"}, pool, c, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	relay := outbox.Config{Instance: "i", Cell: "c", Topic: "t", Buckets: 8, TopicPartitions: 8}
	if _, err := outbox.New(relay, outbox.Deps{Connect: nowhere, Kafka: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1")}, Metrics: c}); err != nil {
		t.Fatal(err)
	}
	if _, err := partitions.New(partitions.Config{
		Spec: partitions.Spec{Parent: "outbox"}, Connect: nowhere, Registry: c,
		Drained: func(context.Context, pgx.Tx, string) (bool, string, error) { return false, "", nil },
		Barrier: func(context.Context, *pgx.Conn) error { return nil },
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// namesOf finds the metric selectors of an expression: a name, and the labels asked of it.
var selectorPattern = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{([^}]*)\})?`)

func TestRules_EveryMetricAndLabelOfRulesAndPanelsExists(t *testing.T) {
	t.Parallel()
	known := everyMetric(t)
	expressions, records := ruleExpressions(t)
	expressions = append(expressions, panelExpressions(t)...)
	if len(known) < 60 || len(expressions) < 60 {
		t.Fatalf("only %d metrics and %d expressions were found: this test is blind", len(known), len(expressions))
	}
	label := regexp.MustCompile(`([a-z_]+)\s*[=!]~?`)
	checked := 0
	for _, expr := range expressions {
		for _, m := range selectorPattern.FindAllStringSubmatch(withoutGrouping(expr), -1) {
			name := m[1]
			if strings.Contains(name, ":") {
				if !slices.Contains(records, name) {
					t.Errorf("%s: no rule records %s", expr, name)
				}
				continue
			}
			if !strings.Contains(name, "_") && name != "up" || isFunction(name) {
				continue
			}
			labels, ok := lookUp(known, name)
			if !ok {
				t.Errorf("%s: no part has the metric %s", expr, name)
				continue
			}
			checked++
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				if l[1] != "le" && l[1] != "instance" && l[1] != "job" && !slices.Contains(labels, l[1]) {
					t.Errorf("%s: %s has no label %s, it has %v", expr, name, l[1], labels)
				}
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d selectors were checked: this test is blind", checked)
	}
}

// withoutGrouping takes out what looks like a name and is none: strings, by (…), durations.
func withoutGrouping(expr string) string {
	expr = regexp.MustCompile(`\b(by|without|on|ignoring)\s*\([^)]*\)`).ReplaceAllString(expr, " ")
	expr = regexp.MustCompile(`\[[^\]]*\]`).ReplaceAllString(expr, " ")
	return expr
}

func isFunction(name string) bool {
	return slices.Contains([]string{"histogram_quantile", "avg_over_time", "max_over_time", "label_values"}, name)
}

func lookUp(known catalogue, name string) ([]string, bool) {
	for _, suffix := range []string{"", "_bucket", "_count", "_sum"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			if labels, found := known[base]; found {
				return labels, true
			}
		}
	}
	return nil, false
}

// ruleExpressions returns every expression of the rule files, and the names that are recorded.
func ruleExpressions(t *testing.T) (expressions, records []string) {
	t.Helper()
	for _, file := range []string{"slo.yml", "alerts.yml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Groups []struct {
				Rules []struct{ Record, Alert, Expr string }
			}
		}
		if err := yaml.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		for _, g := range doc.Groups {
			for _, r := range g.Rules {
				expressions = append(expressions, r.Expr)
				if r.Record != "" {
					records = append(records, r.Record)
				}
			}
		}
	}
	return expressions, records
}

func panelExpressions(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../grafana/hubstate.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Panels []struct {
			Targets []struct{ Expr string }
			Panels  []struct{ Targets []struct{ Expr string } }
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range doc.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
		for _, inner := range p.Panels {
			for _, target := range inner.Targets {
				all = append(all, target.Expr)
			}
		}
	}
	return all
}

// A recorded series that nobody computes from known numbers may say anything.
func TestRules_EveryRecordingHasAUnitTest(t *testing.T) {
	t.Parallel()
	_, records := ruleExpressions(t)
	tests, err := os.ReadFile("rules_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records {
		if !regexp.MustCompile(`- expr: .*` + regexp.QuoteMeta(record) + `\b`).Match(tests) {
			t.Errorf("%s: no unit test of its value", record)
		}
	}
}

// Every alert says how bad it is, in words, and where the page about it is.
func TestRules_EveryAlertHasSeveritySummaryAndRunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				For         string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("rules_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range doc.Groups {
		for _, r := range g.Rules {
			if r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
				t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
			}
			if want := "docs/operations.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want || r.Annotations["summary"] == "" {
				t.Errorf("%s: runbook %q, want %q, and a summary", r.Alert, r.Annotations["runbook"], want)
			}
			if r.For != "" {
				if _, err := time.ParseDuration(r.For); err != nil {
					t.Errorf("%s: for %q: %v", r.Alert, r.For, err)
				}
			}
			if !regexp.MustCompile(`alertname: ` + r.Alert + `\n\s+eval_time: \w+\n\s+exp_alerts:`).Match(tests) {
				t.Errorf("%s: no unit test in which it fires", r.Alert)
			}
		}
	}
}
