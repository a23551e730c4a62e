package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/loadtest/oracle"
)

// productMutant is the product with one guarantee switched off: by a name that builds with the tag `mutant` know, or by
// changing one place of its source for this build only.
type productMutant struct {
	name  string
	env   string // HUBSTATE_MUTANT
	patch *sourcePatch
	// load and trouble that make it do harm
	scenario string
	want     []oracle.Fault // one of them
}

// sourcePatch replaces one place of one file; it must occur exactly once.
type sourcePatch struct{ file, old, new string }

const (
	calm = `
load: {devices: 2000, connections: 8, rate: 6000, duration: 8s}
`
	killedIngest = `
load: {devices: 2000, connections: 8, rate: 5000, duration: 8s}
faults:
  - {at: 2s, every: 1700ms, do: kill, on: [ingest], for: 100ms}
`
	killedRelay = `
load: {devices: 2000, connections: 8, rate: 6000, duration: 10s}
faults:
  - {at: 2s, every: 2300ms, do: kill, on: [relay], for: 100ms}
`
	killedRelayBehindHungKafka = `
load: {devices: 2000, connections: 8, rate: 4000, duration: 16s}
faults:
  - {at: 3s, every: 4s, do: hang, on: [kafka], for: 2s}
  - {at: 3500ms, every: 4s, do: kill, on: [relay], for: 300ms}
`
	repeatedRecords = `
load: {devices: 1000, connections: 8, rate: 2000, duration: 8s}
faults:
  - {at: 3s, do: repeat, on: [topic]}
  - {at: 6s, do: repeat, on: [topic]}
`
)

func productMutants() []productMutant {
	return []productMutant{
		{
			name: "ack_before_commit", scenario: killedIngest, want: []oracle.Fault{oracle.Lost},
			patch: &sourcePatch{"ingest/writer.go", "\t\terr := w.attempt(ctx, items)\n", "\t\tif try == 0 {\n\t\t\tw.acks.send(items)\n\t\t}\n\t\terr := w.attempt(ctx, items)\n"},
		},
		{name: "no_bucket_lock", env: "no_bucket_lock", scenario: calm, want: []oracle.Fault{oracle.Lost, oracle.NotDense, oracle.DoubleEvent}},
		{name: "cursor_before_ack", env: "cursor_before_ack", scenario: killedRelay, want: []oracle.Fault{oracle.Lost, oracle.Hole}},
		{name: "submit_early", env: "submit_early", scenario: killedRelayBehindHungKafka, want: []oracle.Fault{oracle.Reordered, oracle.Lost, oracle.Hole}},
		{
			name: "gate_off", scenario: repeatedRecords, want: []oracle.Fault{oracle.DoubleEffect},
			patch: &sourcePatch{"devicestate/consumer/apply.lua", "  if position > seen then\n", "  if true then\n"},
		},
	}
}

// TestOracle_CatchesProductMutants builds the product with one guarantee switched off at a time, runs it on real parts
// and wants the verdict that names the harm. It also runs each scenario on the unchanged product and wants none.
// It takes some minutes: HUBSTATE_MUTANTS=1 runs it, HUBSTATE_MUTANTS=name only one.
func TestOracle_CatchesProductMutants(t *testing.T) {
	chosen := os.Getenv("HUBSTATE_MUTANTS")
	if chosen == "" {
		t.Skip("takes minutes: set HUBSTATE_MUTANTS=1")
	}
	for _, m := range productMutants() {
		if chosen != "1" && chosen != m.name {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			found := runMutant(t, m)
			for _, f := range m.want {
				if found[f] > 0 {
					t.Logf("caught: %v", found)
					return
				}
			}
			t.Errorf("found %v, want one of %v", found, m.want)
		})
		t.Run(m.name+"/unchanged", func(t *testing.T) {
			found := runMutant(t, productMutant{scenario: m.scenario})
			for f, n := range found {
				if f != oracle.TopicDuplicate {
					t.Errorf("the unchanged product: %s %d", f, n)
				}
			}
		})
	}
}

// runMutant builds, runs and returns what the oracle found.
func runMutant(t *testing.T, m productMutant) map[oracle.Fault]int64 {
	t.Helper()
	dir := placeFor(t)
	bin := buildMutant(t, dir, m)
	scenario := filepath.Join(dir, "scenario.yaml")
	if err := os.WriteFile(scenario, []byte(m.scenario), 0o600); err != nil {
		t.Fatal(err)
	}
	keep := filepath.Join(dir, "run")
	cmd := exec.Command(filepath.Join(bin, "loadtest"), "run", "--scenario", scenario, "--keep", keep)
	cmd.Env = append(os.Environ(), "HUBSTATE_MUTANT="+m.env)
	out, runErr := cmd.CombinedOutput()
	runs, err := loadRecords([]string{keep})
	if err != nil {
		t.Fatalf("%v (%v)\n%s", err, runErr, out)
	}
	if runs[0].Summary.OutboxRows == 0 {
		t.Fatalf("nothing was judged: %v\n%s", runErr, out)
	}
	found := map[oracle.Fault]int64{}
	for _, f := range runs[0].Findings {
		found[f.Fault] = f.Count
	}
	return found
}

// placeFor is a directory that PostgreSQL's user can pass through; those of t.TempDir are their owner's alone.
func placeFor(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hubstate-mutant-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

func buildMutant(t *testing.T, dir string, m productMutant) string {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	args := []string{"build", "-tags", "mutant", "-o", bin + "/"}
	if m.patch != nil {
		args = append(args, "-overlay", writeOverlay(t, dir, m.patch))
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append(args, "./cmd/ingest", "./cmd/relay", "./loadtest")...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", m.name, err, out)
	}
	return bin
}

// writeOverlay makes the changed file and the description that `go build -overlay` reads.
func writeOverlay(t *testing.T, dir string, p *sourcePatch) string {
	t.Helper()
	original, err := filepath.Abs(filepath.Join("..", p.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), p.old); n != 1 {
		t.Fatalf("%s holds the place to change %d times: the mutant no longer fits the product", p.file, n)
	}
	changed := filepath.Join(dir, "changed"+filepath.Ext(p.file))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), p.old, p.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMutants_FitTheProduct: a mutant whose place is gone proves nothing; this is seen without the minutes it takes to run.
func TestMutants_FitTheProduct(t *testing.T) {
	t.Parallel()
	for _, m := range productMutants() {
		if m.patch != nil {
			writeOverlay(t, t.TempDir(), m.patch)
		}
		path := filepath.Join(t.TempDir(), "s.yaml")
		if err := os.WriteFile(path, []byte(m.scenario), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadScenario(path); err != nil {
			t.Error(fmt.Errorf("%s: %w", m.name, err))
		}
	}
}
