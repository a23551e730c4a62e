package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hubstate/hubstate/loadtest/oracle"
	"github.com/hubstate/hubstate/loadtest/rig"
	"github.com/hubstate/hubstate/loadtest/subject"
)

// Files of a kept run.
const (
	ledgerFile = "ledger.gob.gz"
	recordFile = "run.json"
)

// Summary is the line that --json ends with.
type Summary struct {
	Scenario     string `json:"scenario"`
	Seed         uint64 `json:"seed"`
	Devices      int    `json:"devices"`
	Published    int64  `json:"published"`
	Acknowledged int64  `json:"acknowledged"`
	Received     int64  `json:"received"`
	oracle.Classes
	Abandoned       int64           `json:"abandoned"`
	OutboxRows      int64           `json:"outbox_rows"`
	KafkaRecords    int64           `json:"kafka_records"`
	Consumed        int64           `json:"consumed"`
	Lost            int64           `json:"lost"`
	Reordered       int64           `json:"reordered"`
	TopicDuplicates int64           `json:"topic_duplicates"`
	EventsPerSecond float64         `json:"events_per_second"`
	Latency         subject.Latency `json:"latency_ms"`
}

// Record is all that is kept of a run: what `loadtest report` and `compare` read.
type Record struct {
	Summary  Summary                  `json:"summary"`
	Correct  bool                     `json:"correct"`
	Findings []oracle.Finding         `json:"findings"`
	Scenario Scenario                 `json:"scenario"`
	Started  time.Time                `json:"started"`
	Machine  Machine                  `json:"machine"`
	Samples  []Sample                 `json:"samples"`
	Marks    []rig.Mark               `json:"marks,omitempty"`
	Phases   map[string]time.Duration `json:"phases"`
	Resent   int64                    `json:"resent"`
	Broken   int64                    `json:"broken"`
	Exits    map[string]int           `json:"exits,omitempty"` // daemons that ended although nobody stopped them
	Recovery time.Duration            `json:"recovery"`        // from the end of the last fault until nothing was late by a second

	result *oracle.Result
}

// record takes down what the run did, before it is judged.
func (b *bench) record() *Record {
	book := b.fleet.Ledger()
	r := &Record{
		Scenario: b.scenario, Started: book.Start, Machine: thisMachine(), Samples: b.progress.samples,
		Phases: b.progress.marks, Resent: b.fleet.Dups.Load(), Broken: b.fleet.Broken.Load(), Exits: since(b.in.Exits(), b.exits),
	}
	if b.timetable != nil {
		r.Marks = b.timetable.Marks()
	}
	s := &r.Summary
	s.Scenario, s.Seed, s.Devices = b.scenario.Name, b.seed, b.scenario.Load.Devices
	s.Published, s.Acknowledged = book.Totals()
	s.Latency = b.subject.Total()
	if took := b.subject.LastAt().Sub(book.Start).Seconds(); took > 0 {
		s.EventsPerSecond = float64(int(float64(b.subject.Handled.Load()-int64(s.Devices))/took*10)) / 10
	}
	r.Recovery = recovery(r.Marks, b.subject.LastSlow().Sub(book.Start))
	return r
}

// since is what was added to counts that were before.
func since(now, before map[string]int) map[string]int {
	added := map[string]int{}
	for name, n := range now {
		if n > before[name] {
			added[name] = n - before[name]
		}
	}
	return added
}

// recovery is how long after the last fault was mended an event was still handled a second late.
func recovery(marks []rig.Mark, lastSlow time.Duration) time.Duration {
	if len(marks) == 0 {
		return 0
	}
	var healed time.Duration
	for _, m := range marks {
		healed = max(healed, m.Healed)
	}
	return max(0, lastSlow-healed)
}

// judge enters the oracle's answer.
func (r *Record) judge(result *oracle.Result, h *oracle.History, expect Expect) {
	s := &r.Summary
	s.Classes = h.Database.Classes
	if h.Counted != nil {
		s.Abandoned = h.Counted.Abandoned
	}
	s.Received = s.Classes.Total() + s.Abandoned
	s.OutboxRows = int64(len(h.Database.Outbox))
	s.KafkaRecords = int64(len(h.Topic))
	s.Consumed = int64(len(h.Consumer.Effects))
	s.Lost = result.Count(oracle.Lost)
	s.Reordered = result.Count(oracle.Reordered)
	s.TopicDuplicates = result.Count(oracle.TopicDuplicate)
	r.result, r.Findings, r.Correct = result, result.Findings(), judge(result, expect)
}

// print is the verdict for people.
func (r *Record) print(w io.Writer) {
	s := &r.Summary
	fmt.Fprintf(w, "\nscenario %s, seed %d: %d devices published %d reports, %d acknowledged; %d events handled, %.0f/s; due to handled p50 %.0f ms, p95 %.0f ms, p99 %.0f ms\n",
		s.Scenario, s.Seed, s.Devices, s.Published, s.Acknowledged, s.Consumed, s.EventsPerSecond, s.Latency.P50, s.Latency.P95, s.Latency.P99)
	fmt.Fprintf(w, "classes: applied %d, duplicate %d, late %d, coalesced %d, discarded %d, ignored %d, quarantined %d\n",
		s.Applied, s.Duplicate, s.Late, s.Coalesced, s.Discarded, s.Ignored, s.Quarantined)
	if len(r.Marks) > 0 {
		fmt.Fprintf(w, "%d faults; recovered %.1f s after the last was mended; %d publishes repeated by devices\n", len(r.Marks), r.Recovery.Seconds(), r.Resent)
	}
	for name, n := range r.Exits {
		fmt.Fprintf(w, "%s ended %d times although nobody stopped it\n", name, n)
	}
	if r.result != nil {
		r.result.Print(w)
	}
}

func (r *Record) save(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("save the run: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("save the run: %w", err)
	}
	return nil
}
