package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/hubstate/hubstate/loadtest/chart"
	"github.com/hubstate/hubstate/loadtest/oracle"
)

// row is one number of one or two runs.
type row struct {
	Name   string
	Values []string
	Ratio  string // of two; empty when one is zero
}

// rowsOf lists the numbers of runs beside each other.
func rowsOf(runs []*Record) []row {
	var rows []row
	add := func(name string, value func(*Record) float64) {
		r := row{Name: name}
		var numbers []float64
		for _, run := range runs {
			v := value(run)
			numbers = append(numbers, v)
			r.Values = append(r.Values, number(v))
		}
		if len(runs) == 2 {
			r.Ratio = "–"
			if numbers[0] != 0 {
				r.Ratio = fmt.Sprintf("%.2f", numbers[1]/numbers[0])
			}
		}
		rows = append(rows, r)
	}
	addCounts(add)
	addCosts(add, runs)
	return rows
}

// number writes counts in full and the rest short.
func number(v float64) string {
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return chart.Short(v)
}

func addCounts(add func(string, func(*Record) float64)) {
	count := func(name string, value func(*Summary) int64) {
		add(name, func(r *Record) float64 { return float64(value(&r.Summary)) })
	}
	add("events per second", func(r *Record) float64 { return r.Summary.EventsPerSecond })
	add("p50, ms", func(r *Record) float64 { return r.Summary.Latency.P50 })
	add("p95, ms", func(r *Record) float64 { return r.Summary.Latency.P95 })
	add("p99, ms", func(r *Record) float64 { return r.Summary.Latency.P99 })
	count("published", func(s *Summary) int64 { return s.Published })
	count("acknowledged", func(s *Summary) int64 { return s.Acknowledged })
	count("received", func(s *Summary) int64 { return s.Received })
	count("applied", func(s *Summary) int64 { return s.Applied })
	count("duplicate", func(s *Summary) int64 { return s.Duplicate })
	count("late", func(s *Summary) int64 { return s.Late })
	count("quarantined", func(s *Summary) int64 { return s.Quarantined })
	count("records on the topic", func(s *Summary) int64 { return s.KafkaRecords })
	count("handled", func(s *Summary) int64 { return s.Consumed })
	count("lost", func(s *Summary) int64 { return s.Lost })
	add("lost before us", func(r *Record) float64 { return float64(r.count(oracle.LostBeforeUs)) })
	count("reordered", func(s *Summary) int64 { return s.Reordered })
	count("topic duplicates", func(s *Summary) int64 { return s.TopicDuplicates })
	add("recovery, s", func(r *Record) float64 { return r.Recovery.Seconds() })
}

// addCosts adds what an event costs, measured from the first to the last sample.
func addCosts(add func(string, func(*Record) float64), runs []*Record) {
	var names []string
	for _, r := range runs {
		for _, name := range r.components() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		add("CPU µs per event, "+name, func(r *Record) float64 {
			return r.perHandled(func(s Sample) float64 { return float64(s.Usage[name].CPU / time.Microsecond) })
		})
	}
	for _, name := range names {
		add("peak memory MiB, "+name, func(r *Record) float64 {
			var peak int64
			for _, s := range r.Samples {
				peak = max(peak, s.Usage[name].RSS)
			}
			return float64(peak) / (1 << 20)
		})
	}
	add("database log, bytes per event", func(r *Record) float64 { return r.perHandled(func(s Sample) float64 { return float64(s.WAL) }) })
	add("Kafka log, bytes per event", func(r *Record) float64 { return r.perHandled(func(s Sample) float64 { return float64(s.Kafka) }) })
}

// perHandled is the growth of a number over the events handled meanwhile.
func (r *Record) perHandled(value func(Sample) float64) float64 {
	first, last := -1, -1
	for i, s := range r.Samples {
		if s.known() && s.Handled > 0 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first == last {
		return 0
	}
	a, b := r.Samples[first], r.Samples[last]
	return max(0, (value(b)-value(a))/float64(b.Handled-a.Handled))
}

// count is how often the oracle found f.
func (r *Record) count(f oracle.Fault) int64 {
	for _, found := range r.Findings {
		if found.Fault == f {
			return found.Count
		}
	}
	return 0
}

// printRows writes the table for a terminal.
func printRows(out io.Writer, runs []*Record) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	for _, r := range rowsOf(runs) {
		fmt.Fprintf(w, "%s\t", r.Name)
		for _, v := range r.Values {
			fmt.Fprintf(w, "%s\t", v)
		}
		fmt.Fprintf(w, "%s\t\n", r.Ratio)
	}
	return w.Flush()
}
