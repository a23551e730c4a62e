package peers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/hubstate/hubstate/loadtest/rig"
)

// Drain is one measured emptying of a table.
type Drain struct {
	Peer       string  `json:"peer"`
	Rows       int     `json:"rows"`
	PerSecond  float64 `json:"records_per_second"`             // from the first record
	SecondHalf float64 `json:"records_per_second_second_half"` // when a virtual machine has warmed up
	ToLast     float64 `json:"seconds_to_last_record"`         // from the start of its process
	ClientCPU  float64 `json:"client_cpu_seconds"`             // of its process, its start included
	ServerCPU  float64 `json:"postgres_cpu_seconds"`
	KafkaCPU   float64 `json:"kafka_cpu_seconds"`
	MemoryMiB  float64 `json:"client_peak_mib"`
}

// warmShare is the part of a drain's rows that is drained once before anything counts: a broker that has just started
// has not compiled its code yet, which would be the first peer's burden.
const warmShare = 5

// drains lets every peer empty its table, pair after pair; their order turns round each time.
func (r *runner) drains(ctx context.Context) (all []Drain, err error) {
	for n := range r.opts.Pairs + 1 {
		share, note := 1, ""
		if n == 0 {
			share, note = warmShare, " (to warm up, does not count)"
		}
		if err := r.fillAll(ctx, share); err != nil {
			return all, err
		}
		order := slices.Clone(r.peers)
		if n%2 == 1 {
			slices.Reverse(order)
		}
		for _, p := range order {
			d, err := r.drain(ctx, p, max(1, p.rows/share))
			if err != nil {
				return all, err
			}
			fmt.Fprintf(r.opts.Out, "%-9s %8.0f records/s, second half %8.0f/s; CPU s: peer %.1f, PostgreSQL %.1f, Kafka %.1f; %.0f MiB%s\n",
				d.Peer, d.PerSecond, d.SecondHalf, d.ClientCPU, d.ServerCPU, d.KafkaCPU, d.MemoryMiB, note)
			if n > 0 {
				all = append(all, d)
			}
		}
	}
	return all, nil
}

// fillAll fills each table once: two peers may read the same.
func (r *runner) fillAll(ctx context.Context, share int) error {
	filled := map[*filler]bool{}
	for _, p := range r.peers {
		if filled[p.fill] {
			continue
		}
		filled[p.fill] = true
		if err := p.fill.fill(ctx, max(1, p.rows/share)); err != nil {
			return err
		}
	}
	return nil
}

// drain starts a peer, watches the ends of its topic until all rows are there, stops it, and only then reads them.
func (r *runner) drain(ctx context.Context, p *peer, rows int) (d Drain, err error) {
	d.Peer, d.Rows = p.name, rows
	before, err := count(ctx, r.in.Kafka, p.topic.topic)
	if err != nil {
		return d, err
	}
	sampler := rig.NewSampler()
	sampler.Sample(r.in.Processes())
	idle := sampler.Sample(r.in.Processes())
	began := time.Now()
	run, err := p.start(ctx)
	if err != nil {
		return d, err
	}
	var usage map[string]rig.Usage
	sample := func() {
		processes := r.in.Processes()
		delete(processes, rig.Relay+"/1") // it is there under the peer's name, if it runs
		processes[p.name+"/1"] = run.PID()
		usage = sampler.Sample(processes)
		d.MemoryMiB = max(d.MemoryMiB, float64(usage[p.name].RSS)/(1<<20))
	}
	a, err := awaitArrival(ctx, r.in.Kafka, p.topic.topic, before, int64(rows), sample)
	sample()
	err = errors.Join(err, run.Terminate(context.WithoutCancel(ctx)))
	if err != nil {
		return d, fmt.Errorf("drain with %s: %w; see %s", p.name, err, filepath.Join(r.opts.Dir, p.name+".log"))
	}
	d.PerSecond, d.SecondHalf = a.rate(int64(rows))
	d.ToLast = a.Last.Sub(began).Seconds()
	d.ClientCPU = usage[p.name].CPU.Seconds()
	d.ServerCPU = (usage[rig.Postgres].CPU - idle[rig.Postgres].CPU).Seconds()
	d.KafkaCPU = (usage[rig.Kafka].CPU - idle[rig.Kafka].CPU).Seconds()
	return d, r.catchUp(ctx, p)
}

// catchUp reads what a peer has delivered. It may have been stopped before its last row: then the topic is quiet.
func (r *runner) catchUp(ctx context.Context, p *peer) error {
	if err := p.topic.open(ctx); err != nil {
		return err
	}
	defer p.topic.close()
	if err := p.topic.until(ctx, p.fill.total, 3*time.Second, nil); !errors.Is(err, errQuiet) {
		return err
	}
	return nil
}
