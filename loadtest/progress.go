package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/hubstate/hubstate/loadtest/rig"
	"github.com/hubstate/hubstate/loadtest/subject"
	"github.com/hubstate/hubstate/loadtest/witness"
)

// Sample is one second of a run.
type Sample struct {
	At        time.Duration        `json:"at"` // after the fleet's start
	Sent      int64                `json:"sent"`
	Acked     int64                `json:"acked"`
	Committed int64                `json:"committed"` // reports of all classes
	Applied   int64                `json:"applied"`   // rows in the outbox
	Published int64                `json:"published"`
	Handled   int64                `json:"handled"`
	Latency   subject.Latency      `json:"latency_ms"` // of what was handled in this second
	Handling  int64                `json:"handling"`   // how many that were
	WAL       int64                `json:"wal_bytes"`  // of PostgreSQL, since the start
	Kafka     int64                `json:"kafka_bytes"`
	Batch     float64              `json:"batch"` // reports per transaction of ingest in this second; 0 = none
	Usage     map[string]rig.Usage `json:"usage"`
}

// progress samples once a second and says so.
type progress struct {
	b       *bench
	sampler *rig.Sampler
	started chan time.Time
	samples []Sample
	marks   map[string]time.Duration
	start   time.Time
	first   witness.Progress
	batches batchCount
}

// batchCount is what ingest's histogram of batch sizes said last.
type batchCount struct{ reports, transactions float64 }

// since returns the mean batch size since the last call; 0 when there was none, or a counter started again.
func (c *batchCount) since(metrics map[string]float64) float64 {
	now := batchCount{metrics["ingest_batch_reports_sum"], metrics["ingest_batch_reports_count"]}
	reports, transactions := now.reports-c.reports, now.transactions-c.transactions
	*c = now
	if transactions <= 0 || reports < 0 {
		return 0
	}
	return reports / transactions
}

func newProgress(b *bench) *progress {
	return &progress{b: b, sampler: rig.NewSampler(), started: make(chan time.Time, 1), marks: map[string]time.Duration{}}
}

// begin sets the time that samples count from.
func (p *progress) begin(start time.Time) { p.start = start; p.started <- start }

// mark remembers when a phase ended.
func (p *progress) mark(phase string) { p.marks[phase] = time.Since(p.start) }

func (p *progress) run(ctx context.Context) error {
	var start time.Time
	select {
	case start = <-p.started:
	case <-ctx.Done():
		return nil
	}
	p.first, _ = witness.ReadProgress(ctx, p.b.in.Database)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s := p.sample(ctx, time.Since(start))
		p.samples = append(p.samples, s)
		p.print(s)
	}
}

// sample reads what there is; the database may be the one that is down right now.
func (p *progress) sample(ctx context.Context, at time.Duration) Sample {
	s := Sample{At: at, Sent: p.b.fleet.Sent.Load(), Acked: p.b.fleet.Acked.Load(), Handled: p.b.subject.Handled.Load()}
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	s.Latency, s.Handling = p.b.subject.Window()
	if now, err := witness.ReadProgress(ctx, p.b.in.Database); err == nil {
		s.Committed = now.Committed - p.first.Committed
		s.Applied = now.Applied - p.first.Applied
		s.Published = now.Published - p.first.Published
		s.WAL = now.WAL - p.first.WAL
	}
	s.Batch = p.batches.since(p.b.in.Metrics(ctx, rig.Ingest))
	s.Kafka = p.b.in.KafkaBytes()
	processes := p.b.in.Processes()
	s.Usage = p.sampler.Sample(processes)
	s.Usage[fleetName] = ownUsage()
	return s
}

// ownUsage is what this process uses: the fleet and the consumer under test together.
func ownUsage() rig.Usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return rig.Usage{}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return rig.Usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano()), RSS: int64(m.Sys - m.HeapReleased)}
}

// print writes a line: over the last one on a terminal, else one after the other.
func (p *progress) print(s Sample) {
	end := "\n"
	if terminal(p.b.out) {
		end = "\r"
	}
	fmt.Fprintf(p.b.out, "%6.0fs  sent %d  acked %d  committed %d  published %d  handled %d  p50 %.0f ms  p99 %.0f ms  %s",
		s.At.Seconds(), s.Sent, s.Acked, s.Committed, s.Published, s.Handled, s.Latency.P50, s.Latency.P99, end)
}

func terminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
