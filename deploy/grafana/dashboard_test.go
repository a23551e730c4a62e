package grafana

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

var update = flag.Bool("update", false, "write hubstate.json again")

const file = "hubstate.json"

func TestDashboard_IsTheGeneratedOne(t *testing.T) {
	t.Parallel()
	want, err := JSON()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("hubstate.json is not what panels.go says; run go test ./deploy/grafana/ -update")
	}
}

func TestDashboard_IsValid(t *testing.T) {
	t.Parallel()
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(text); err != nil {
		t.Error(err)
	}
	// The check must see what it is there for.
	for name, broken := range map[string]string{
		"a panel wider than the grid": strings.Replace(string(text), `"w": 4`, `"w": 40`, 1),
		"a misspelt field":            strings.Replace(string(text), `"panels"`, `"panelz"`, 1),
	} {
		if broken == string(text) {
			t.Fatalf("%s: nothing was broken", name)
		}
		if check([]byte(broken)) == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// check decodes strictly and validates. The strict decoder of this SDK version returns a non-nil, empty list of errors
// for what is right, and a value without panels: only its list counts, the value comes from the ordinary decoder.
func check(text []byte) error {
	var strict dashboard.Dashboard
	var list cog.BuildErrors
	if err := strict.UnmarshalJSONStrict(text); err != nil && (!errors.As(err, &list) || len(list) > 0) {
		return err
	}
	var d dashboard.Dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	return d.Validate()
}

func TestDashboard_IDsAreUnique(t *testing.T) {
	t.Parallel()
	d, err := Dashboard()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for _, p := range d.Panels {
		id := uint32(0)
		switch {
		case p.Panel != nil && p.Panel.Id != nil:
			id = *p.Panel.Id
		case p.RowPanel != nil:
			id = p.RowPanel.Id
		}
		if id == 0 || seen[id] {
			t.Errorf("id %d is missing or twice", id)
		}
		seen[id] = true
	}
	if len(seen) < 20 {
		t.Errorf("%d panels and rows, the tables of panels.go have more", len(seen))
	}
}

// promtool parses every expression as a rule; Grafana's variables stand for a regexp and a duration.
func TestDashboard_EveryExpressionParses(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no promtool: run make setup")
		}
		t.Skip("no promtool")
	}
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: panels\n    rules:\n")
	names := regexp.MustCompile(`[^a-z0-9]+`)
	for _, r := range rows() {
		for _, p := range r.panels {
			for _, q := range p.queries {
				expr := strings.NewReplacer("$__rate_interval", "1m", "$hub", ".*").Replace(q.expr)
				quoted, err := json.Marshal(expr)
				if err != nil {
					t.Fatal(err)
				}
				rules.WriteString("      - record: panel:" + names.ReplaceAllString(strings.ToLower(p.title+q.legend), "_") + "\n        expr: " + string(quoted) + "\n")
			}
		}
	}
	path := filepath.Join(t.TempDir(), "panels.yml")
	if err := os.WriteFile(path, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
