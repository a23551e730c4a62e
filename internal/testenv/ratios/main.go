// Command ratios measures one thing of ours against another in one run, and fails when it falls short of its goal. It is
// what `make ratios` runs.
//
// Absolute speed belongs to a machine and an hour; a ratio travels. So each ratio is the median of alternating pairs: a
// machine that slows down half way slows both halves of the pairs that follow.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// ratio says what is compared. A benchmark that alternates by itself reports the metrics ratio, ratio-min and ratio-max
// and has no other; two benchmarks are compared by a common metric, a rate.
type ratio struct {
	name    string
	pkg     string
	ours    string // benchmark
	other   string // benchmark; empty: ours alternates by itself
	metric  string
	count   string // -benchtime
	goal    float64
	meaning string
}

func ratios() []ratio {
	return []ratio{
		{
			name: "ingest_vs_copy", pkg: "./ingest", ours: "BenchmarkIngestTransaction/writers=2$", other: "BenchmarkBareCopy/writers=1$",
			metric: "reports/s", count: "200000x", goal: 0.5, meaning: "ingest's transaction, 2 writers : a bare COPY of the same outbox rows",
		},
		{
			name: "ingest_spread_vs_copy", pkg: "./ingest", ours: "BenchmarkIngestTransaction/writers=4/every-batch-all-buckets$", other: "BenchmarkBareCopy/writers=1$",
			metric: "reports/s", count: "200000x", goal: 0.25, meaning: "the same with 4 writers whose every batch touches all 64 buckets",
		},
		{
			name: "ingest_vs_copies", pkg: "./ingest", ours: "BenchmarkIngestTransaction/writers=2$", other: "BenchmarkBareCopy/writers=2$",
			metric: "reports/s", count: "200000x", meaning: "ingest's transaction, 2 writers : as many COPY streams (no goal; both cores are full)",
		},
		{
			name: "ingest_vs_bare_subscriber", pkg: "./ingest", ours: "BenchmarkMQTT/ingest/sessions=2$", other: "BenchmarkMQTT/plain/sessions=2$",
			metric: "messages/s", count: "200000x", goal: 0.6, meaning: "ingest over MQTT into PostgreSQL : a subscriber that only acknowledges, 2 sessions each",
		},
		{
			name: "relay_vs_producer", pkg: "./outbox", ours: "BenchmarkRelayVsProducer$", count: "1x", goal: 0.8,
			meaning: "relay drain : a bare idempotent producer of the same records",
		},
		{
			name: "relay_vs_skip_locked", pkg: "./outbox", ours: "BenchmarkRelayVsSkipLocked$", count: "1x", goal: 3,
			meaning: "relay drain : a relay with SKIP LOCKED and a status column, same rows, same producer",
		},
		{
			name: "cost_20m_vs_1m", pkg: "./outbox", ours: "BenchmarkRelayFlatCost$", count: "1x", goal: 0.8,
			meaning: "processor time of a row with 1,000,000 rows of backlog : with 20,000,000 (takes ten minutes)",
		},
	}
}

// result is the median and range of a ratio.
type result struct{ median, least, most float64 }

func main() {
	pairs := flag.Int("pairs", 5, "pairs per ratio, at least 5")
	only := flag.String("only", "", "regular expression of names")
	slack := flag.Float64("slack", 1, "goals are multiplied by this: below 1 on a machine that does other things")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, max(*pairs, 5), *only, *slack)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

// run measures all ratios, prints a line each, and tells at the end which fell short.
func run(ctx context.Context, pairs int, only string, slack float64) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	dir, err := os.MkdirTemp("", "hubstate-ratios-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var short []error
	for _, r := range ratios() {
		if !wanted.MatchString(r.name) {
			continue
		}
		got, err := r.measure(ctx, dir, pairs)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Println(r.line(got, slack))
		if got.median < r.goal*slack {
			short = append(short, fmt.Errorf("%s: median %.2f falls short of %.2f", r.name, got.median, r.goal*slack))
		}
	}
	return errors.Join(short...)
}

func (r ratio) line(got result, slack float64) string {
	goal := "no goal"
	if r.goal > 0 {
		goal = fmt.Sprintf("goal ≥ %.2f", r.goal*slack)
	}
	return fmt.Sprintf("%-25s median %5.2f  range %.2f–%.2f  %s  %s", r.name, got.median, got.least, got.most, goal, r.meaning)
}

// measure compiles the benchmarks once and runs them.
func (r ratio) measure(ctx context.Context, dir string, pairs int) (result, error) {
	binary := filepath.Join(dir, r.name+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, r.pkg)
	if out, err := build.CombinedOutput(); err != nil {
		return result{}, fmt.Errorf("compile: %w: %s", err, out)
	}
	if r.other == "" {
		metrics, err := bench(ctx, binary, r.pkg, r.ours, r.count)
		return result{metrics["ratio"], metrics["ratio-min"], metrics["ratio-max"]}, err
	}
	var values []float64
	for range pairs {
		ours, err := bench(ctx, binary, r.pkg, r.ours, r.count)
		if err != nil {
			return result{}, err
		}
		other, err := bench(ctx, binary, r.pkg, r.other, r.count)
		if err != nil {
			return result{}, err
		}
		if ours[r.metric] == 0 || other[r.metric] == 0 {
			return result{}, fmt.Errorf("no metric %s", r.metric)
		}
		values = append(values, ours[r.metric]/other[r.metric])
	}
	return summarise(values), nil
}

func summarise(values []float64) result {
	slices.Sort(values)
	return result{values[len(values)/2], values[0], values[len(values)-1]}
}

// bench runs one benchmark in its package's directory and reads its metrics.
func bench(ctx context.Context, binary, dir, name, count string) (map[string]float64, error) {
	cmd := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.bench=^"+name, "-test.benchtime="+count, "-test.timeout=0")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s%s", name, err, out, stderr.Bytes())
	}
	metrics := parse(out)
	if len(metrics) == 0 {
		return nil, fmt.Errorf("%s: no result in:\n%s", name, out)
	}
	return metrics, nil
}

var resultLine = regexp.MustCompile(`(?m)^Benchmark\S*\s+\d+\s+(.*)$`)

var resultValue = regexp.MustCompile(`([0-9.e+-]+)\s+(\S+)`)

// parse reads the values of a benchmark's result line by their units.
func parse(out []byte) map[string]float64 {
	metrics := map[string]float64{}
	for _, line := range resultLine.FindAllSubmatch(out, -1) {
		for _, pair := range resultValue.FindAllSubmatch(line[1], -1) {
			if value, err := strconv.ParseFloat(string(pair[1]), 64); err == nil {
				metrics[string(pair[2])] = value
			}
		}
	}
	return metrics
}
