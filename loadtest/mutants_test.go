package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/loadtest/oracle"
)

// productMutant is the product with one guarantee switched off: by a name that builds with the tag `mutant` know, or by
// changing one place of its source for this build only.
type productMutant struct {
	name    string
	env     string // HUBSTATE_MUTANT
	patches []sourcePatch
	// load and trouble that make it do harm
	scenario string
	stage    []sourcePatch  // changes that are no mutation: the unchanged product has them too
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
	refusedGroups = `
load: {devices: 2000, connections: 8, rate: 4000, duration: 14s}
parts: {partitions: 8}
faults:
  - {at: 2s, do: narrow, on: [topic], for: 2s}
  - {at: 8s, do: narrow, on: [topic], for: 2s}
`
	// Relay 1 leaves out what is old and is killed amid the rest; relay 2, told to publish everything, takes over.
	killedRelayInCatchUp = `
load: {devices: 4000, connections: 8, rate: 2000, duration: 60s}
parts:
  relay_config: {lease_ttl: 3s, window_rows: "32"}
  relay_members:
    - {backlog: latest, backlog_age: 4s, records_per_second: "300"}
    - {backlog: all}
faults:
  - {at: 4s, do: stop, on: [relay], for: 8s}
  - {at: 15s, do: kill, on: [relay/1], for: 8s}
  - {at: 32s, do: stop, on: [relay], for: 8s}
  - {at: 45s, do: kill, on: [relay/1], for: 8s}
`
	// One lane: several would wait for each other's locks and fall behind for that alone.
	slowWritersAtABorder = `
load: {devices: 500, hubs: 1, connections: 4, rate: 150, duration: 140s}
parts:
  relay_config: {partition_interval: 1m, partition_runway: 10m}
`
)

// slowWriters makes every transaction of ingest stay open for a while after it has written its rows, and the maintainer
// look every second: so that some transaction is open whenever a partition is sealed.
func slowWriters() []sourcePatch {
	return []sourcePatch{
		{"ingest/writer.go", "\tw.two.Queue(commit)\n", "\tw.two.Queue(`SELECT pg_sleep(1)`)\n\tw.two.Queue(commit)\n"},
		{"partitions/manager.go", "c.Tick = or(c.Tick, min(c.Interval/4, 15*time.Second))", "c.Tick = or(c.Tick, time.Second)"},
	}
}

// sealBeforeFloor detaches first and raises the floor afterwards; nobody waits for writers, and nobody looks at the
// detached table once more, which would find their rows.
func sealBeforeFloor() []sourcePatch {
	return []sourcePatch{
		{"partitions/seal.go", `	if err := m.closeRange(ctx, a); err != nil {
		return err
	}
	err := m.unblocked(ctx, "wait for the writers of "+a.Partition, []string{m.cfg.Parent}, func() error {
		return m.cfg.Barrier(ctx, m.conn)
	})
	if err != nil {
		return err
	}
`, ""},
		{"partitions/seal.go", "\tm.cfg.failpoint(\"seal.detached\")\n\treturn nil\n", "\treturn m.closeRange(ctx, a)\n"},
		{"partitions/seal.go", "\tif why != \"\" {\n\t\tm.cfg.Log.Error(\"a detached", "\tif why != \"\" && false {\n\t\tm.cfg.Log.Error(\"a detached"},
	}
}

func productMutants() []productMutant {
	return []productMutant{
		{
			name: "ack_before_commit", scenario: killedIngest, want: []oracle.Fault{oracle.Lost},
			patches: []sourcePatch{{"ingest/writer.go", "\t\terr := w.attempt(ctx, items)\n", "\t\tif try == 0 {\n\t\t\tw.acks.send(items)\n\t\t}\n\t\terr := w.attempt(ctx, items)\n"}},
		},
		{name: "no_bucket_lock", env: "no_bucket_lock", scenario: calm, want: []oracle.Fault{oracle.Lost, oracle.NotDense, oracle.DoubleEvent}},
		{name: "cursor_before_ack", env: "cursor_before_ack", scenario: killedRelay, want: []oracle.Fault{oracle.Lost, oracle.Hole}},
		{name: "submit_early", env: "submit_early", scenario: killedRelayBehindHungKafka, want: []oracle.Fault{oracle.Reordered, oracle.Lost, oracle.Hole}},
		{
			name: "gate_off", scenario: repeatedRecords, want: []oracle.Fault{oracle.DoubleEffect},
			patches: []sourcePatch{{"devicestate/consumer/apply.lua", "  if position > seen then\n", "  if true then\n"}},
		},
		{name: "step_over", env: "step_over", scenario: refusedGroups, want: []oracle.Fault{oracle.Lost, oracle.Hole}},
		{name: "forget_skips", env: "forget_skips", scenario: killedRelayInCatchUp, want: []oracle.Fault{oracle.Hole, oracle.Reordered}},
		{
			name: "seal_before_floor", scenario: slowWritersAtABorder, want: []oracle.Fault{oracle.Lost, oracle.Hole},
			stage: slowWriters(), patches: sealBeforeFloor(),
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
			m.patches = slices.Concat(m.stage, m.patches)
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
			found := runMutant(t, productMutant{scenario: m.scenario, patches: m.stage})
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
	if len(m.patches) > 0 {
		args = append(args, "-overlay", writeOverlay(t, dir, m.patches))
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

// writeOverlay makes the changed files and the description that `go build -overlay` reads.
func writeOverlay(t *testing.T, dir string, patches []sourcePatch) string {
	t.Helper()
	replace, texts := map[string]string{}, map[string]string{}
	for _, p := range patches {
		original, err := filepath.Abs(filepath.Join("..", p.file))
		if err != nil {
			t.Fatal(err)
		}
		if _, known := texts[original]; !known {
			text, err := os.ReadFile(original)
			if err != nil {
				t.Fatal(err)
			}
			texts[original] = string(text)
			replace[original] = filepath.Join(dir, fmt.Sprintf("changed%d%s", len(replace), filepath.Ext(p.file)))
		}
		if n := strings.Count(texts[original], p.old); n != 1 {
			t.Fatalf("%s holds the place to change %d times: the mutant no longer fits the product: %q", p.file, n, p.old)
		}
		texts[original] = strings.Replace(texts[original], p.old, p.new, 1)
	}
	for original, changed := range replace {
		if err := os.WriteFile(changed, []byte(texts[original]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
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
		writeOverlay(t, t.TempDir(), slices.Concat(m.stage, m.patches))
		path := filepath.Join(t.TempDir(), "s.yaml")
		if err := os.WriteFile(path, []byte(m.scenario), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadScenario(path); err != nil {
			t.Error(fmt.Errorf("%s: %w", m.name, err))
		}
	}
}
