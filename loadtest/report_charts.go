package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hubstate/hubstate/loadtest/chart"
)

// charts draws a run over time.
func (r *Record) charts() []chart.Chart {
	return []chart.Chart{
		r.chart("Throughput", "per second", false,
			r.rate("due and sent", func(s Sample) int64 { return s.Sent }), r.rate("committed", func(s Sample) int64 { return s.Committed }),
			r.rate("published", func(s Sample) int64 { return s.Published }), r.rate("handled", func(s Sample) int64 { return s.Handled })),
		r.chart("Latency, due on the device → handled by the consumer", "ms", true,
			r.latency("p50", func(s Sample) float64 { return s.Latency.P50 }), r.latency("p95", func(s Sample) float64 { return s.Latency.P95 }),
			r.latency("p99", func(s Sample) float64 { return s.Latency.P99 })),
		r.chart("Backlog", "reports", false,
			r.level("at the broker", func(s Sample) float64 { return float64(max(0, s.Sent-s.Committed)) }),
			r.level("in the outbox", func(s Sample) float64 { return float64(max(0, s.Applied-s.Published)) }),
			r.level("on the topic", func(s Sample) float64 { return float64(max(0, s.Published-s.Handled)) })),
		r.chart("Reports per transaction", "reports", false, r.level("ingest batch", func(s Sample) float64 { return s.Batch })),
		r.chart("CPU", "cores", false, r.usage(func(before, now Sample, name string) float64 {
			return (now.Usage[name].CPU - before.Usage[name].CPU).Seconds() / (now.At - before.At).Seconds()
		})...),
		r.chart("Memory", "MiB", false, r.usage(func(_, now Sample, name string) float64 { return float64(now.Usage[name].RSS) / (1 << 20) })...),
		r.chart("Database log per committed report", "bytes", false, r.perEvent("WAL", func(s Sample) (int64, int64) { return s.WAL, s.Committed })),
		r.chart("Kafka log per published event", "bytes", false, r.perEvent("topic", func(s Sample) (int64, int64) { return s.Kafka, s.Published })),
	}
}

func (r *Record) chart(title, unit string, log bool, series ...chart.Series) chart.Chart {
	c := chart.Chart{Title: title, Unit: unit, Log: log, Series: series}
	for _, m := range r.Marks {
		c.Spans = append(c.Spans, chart.Span{From: m.From.Seconds(), To: m.Healed.Seconds(), Label: fmt.Sprintf("%s %s", m.Do, strings.Join(m.On, ", "))})
	}
	return c
}

// known reports whether the database could be read for a sample.
func (s Sample) known() bool { return s.Committed > 0 || s.At.Seconds() < 3 }

func (r *Record) level(name string, value func(Sample) float64) chart.Series {
	s := chart.Series{Name: name}
	for _, sample := range r.Samples {
		y := value(sample)
		if !sample.known() {
			y = math.NaN()
		}
		s.X, s.Y = append(s.X, sample.At.Seconds()), append(s.Y, y)
	}
	return s
}

func (r *Record) latency(name string, value func(Sample) float64) chart.Series {
	return r.level(name, func(s Sample) float64 {
		if s.Handling == 0 {
			return math.NaN()
		}
		return value(s)
	})
}

// rate is the growth of a count per second; a sample without the database is skipped.
func (r *Record) rate(name string, count func(Sample) int64) chart.Series {
	s := chart.Series{Name: name}
	var before Sample
	for _, sample := range r.Samples {
		if !sample.known() {
			continue
		}
		y := float64(count(sample)-count(before)) / (sample.At - before.At).Seconds()
		s.X, s.Y = append(s.X, sample.At.Seconds()), append(s.Y, math.Max(y, 0))
		before = sample
	}
	return s
}

// usage makes a series per component.
func (r *Record) usage(value func(before, now Sample, name string) float64) []chart.Series {
	var all []chart.Series
	for _, name := range r.components() {
		s := chart.Series{Name: name}
		for i := 1; i < len(r.Samples); i++ {
			s.X = append(s.X, r.Samples[i].At.Seconds())
			s.Y = append(s.Y, math.Max(0, value(r.Samples[i-1], r.Samples[i], name)))
		}
		all = append(all, s)
	}
	return all
}

// components are the names in the samples, in alphabetical order.
func (r *Record) components() []string {
	var names []string
	for _, s := range r.Samples {
		for name := range s.Usage {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// perEvent is the growth of bytes over the growth of events in the last seconds: one second alone has too few of either.
func (r *Record) perEvent(name string, counts func(Sample) (bytes, events int64)) chart.Series {
	const window = 5
	s := chart.Series{Name: name}
	var known []Sample
	for _, sample := range r.Samples {
		if !sample.known() {
			continue
		}
		known = append(known, sample)
		b, n := counts(sample)
		before, eventsBefore := counts(known[max(0, len(known)-1-window)])
		y := math.NaN()
		if n-eventsBefore > 100 {
			y = math.Max(0, float64(b-before)/float64(n-eventsBefore))
		}
		s.X, s.Y = append(s.X, sample.At.Seconds()), append(s.Y, y)
	}
	return s
}
