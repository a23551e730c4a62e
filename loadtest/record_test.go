package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/loadtest/oracle"
	"github.com/hubstate/hubstate/loadtest/rig"
	"github.com/hubstate/hubstate/loadtest/subject"
)

// TestSummary_IsTheWrittenContract: other programs read this line; its names and their order are fixed.
func TestSummary_IsTheWrittenContract(t *testing.T) {
	t.Parallel()
	line, err := json.Marshal(Summary{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"scenario", "seed", "devices", "published", "acknowledged", "received", "applied", "duplicate", "late", "coalesced",
		"discarded", "ignored", "quarantined", "abandoned", "outbox_rows", "kafka_records", "consumed", "lost", "reordered",
		"topic_duplicates", "events_per_second", "latency_ms", "p50", "p95", "p99"}
	if got := keys(string(line)); !slices.Equal(got, want) {
		t.Errorf("fields %v\nwant   %v", got, want)
	}
	cell, err := json.Marshal(ChaosSummary{Cells: []Cell{{}}})
	if err != nil {
		t.Fatal(err)
	}
	want = []string{"scenario", "seed", "cells", "component", "fault", "lost", "lost_before_us", "reordered", "topic_duplicates", "double_effects", "recovery_seconds"}
	if got := keys(string(cell)); !slices.Equal(got, want) {
		t.Errorf("fields %v\nwant   %v", got, want)
	}
}

func keys(line string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`"(\w+)":`).FindAllStringSubmatch(line, -1) {
		all = append(all, m[1])
	}
	return all
}

// exampleRun is half a minute with a killed relay and a condemned ending.
func exampleRun(events float64) *Record {
	r := &Record{Started: time.Unix(1_800_000_000, 0), Machine: Machine{CPU: "test", Cores: 2}}
	r.Scenario.About = "Shows <nothing>."
	r.Summary = Summary{Scenario: "example", Devices: 10, EventsPerSecond: events, Latency: subject.Latency{P50: 5, P95: 20, P99: 90}, Lost: 1}
	r.Findings = []oracle.Finding{{Fault: oracle.Lost, Count: 1, Offenders: []oracle.Offender{{Device: "d-1", Stream: "state", Report: 7, Detail: "gone <away>"}}}}
	r.Marks = []rig.Mark{{Do: "kill", On: []string{"relay"}, From: 10 * time.Second, Healed: 12 * time.Second}}
	for i := range int64(30) {
		n := (i + 1) * 1000
		s := Sample{At: time.Duration(i+1) * time.Second, Sent: n, Acked: n, Committed: n, Published: n, Handled: n, Handling: 1000, WAL: n * 800, Kafka: n * 90, Batch: 40}
		if i == 11 {
			s.Committed, s.Published, s.WAL, s.Handling = 0, 0, 0, 0 // the database was down
		}
		s.Latency = subject.Latency{P50: 5, P95: 20, P99: 90}
		s.Usage = map[string]rig.Usage{"relay": {CPU: time.Duration(i) * 100 * time.Millisecond, RSS: 50 << 20}, "fleet": {CPU: time.Duration(i) * 50 * time.Millisecond}}
		r.Samples = append(r.Samples, s)
	}
	return r
}

// TestReport_StandsAlone: one file, nothing fetched, all drawings in it, no number that is none.
func TestReport_StandsAlone(t *testing.T) {
	t.Parallel()
	var page bytes.Buffer
	if err := renderPage(&page, []*Record{exampleRun(900)}); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if n := strings.Count(text, "<svg"); n != 8 {
		t.Errorf("%d drawings, want 8", n)
	}
	for _, bad := range []string{"http:", "https:", "src=", "NaN", "Inf", "<nothing>", "<away>"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{"Wrong", "gone &lt;away&gt;", "kill relay", "database log, bytes per event"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestCompare_ShowsTwoRunsSideBySide(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var paths []string
	for i, events := range []float64{1000, 1500} {
		path := filepath.Join(dir, []string{"a.json", "b.json"}[i])
		if err := exampleRun(events).save(path); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	runs, err := loadRecords(paths)
	if err != nil {
		t.Fatal(err)
	}
	var table, page bytes.Buffer
	if err := printRows(&table, runs); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`events per second +1000 +1500 +1\.50`).MatchString(table.String()) {
		t.Errorf("no ratio in\n%s", table.String())
	}
	if err := renderPage(&page, runs); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "<svg"); n != 16 {
		t.Errorf("%d drawings, want 16", n)
	}
}

func TestRecovery_CountsFromTheLastRepair(t *testing.T) {
	t.Parallel()
	marks := []rig.Mark{{Healed: 3 * time.Second}, {Healed: 9 * time.Second}}
	for lastSlow, want := range map[time.Duration]time.Duration{12 * time.Second: 3 * time.Second, 5 * time.Second: 0} {
		if got := recovery(marks, lastSlow); got != want {
			t.Errorf("last slow at %s: %s, want %s", lastSlow, got, want)
		}
	}
}
