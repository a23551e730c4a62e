package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/loadtest/rig"
)

// Options says what is compared.
type Options struct {
	Rows    int // of each drain
	Devices int
	Pairs   int // drains of each, in turn
	Dir     string
	Bin     string // of the relay
	Out     io.Writer
}

// Drain is one measured emptying of the outbox.
type Drain struct {
	Peer       string  `json:"peer"`
	PerSecond  float64 `json:"records_per_second"`
	SecondHalf float64 `json:"records_per_second_second_half"`
	ToLast     float64 `json:"seconds_to_last_record"` // from the start of its process
	ClientCPU  float64 `json:"client_cpu_seconds"`
	ServerCPU  float64 `json:"postgres_cpu_seconds"`
	KafkaCPU   float64 `json:"kafka_cpu_seconds"`
	MemoryMiB  float64 `json:"client_peak_mib"`
}

// Result is all drains and what was wrong with the topics.
type Result struct {
	Rows       int              `json:"rows"`
	Drains     []Drain          `json:"drains"`
	Repeated   map[string]int64 `json:"repeated"`
	Disordered map[string]int64 `json:"disordered"`
}

// Names of what is compared.
const (
	Hubstate = "hubstate"
	Debezium = "debezium"
)

const debeziumTopic = "debezium-state"

// Run fills the outbox and lets both drain it, pair after pair, in alternating order.
func Run(ctx context.Context, opts Options) (res Result, err error) {
	jars, err := fetchDebezium(ctx)
	if err != nil {
		return res, err
	}
	in, err := rig.StartForRelay(ctx, rig.Options{Dir: opts.Dir, Bin: opts.Bin, Topic: "device-state"})
	defer func() { err = errors.Join(err, in.Close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return res, err
	}
	r := &runner{opts: opts, in: in, jars: jars}
	if err := r.prepare(ctx); err != nil {
		return res, err
	}
	res.Rows = opts.Rows
	for pair := range opts.Pairs {
		drains, err := r.pair(ctx, pair)
		if err != nil {
			return res, err
		}
		res.Drains = append(res.Drains, drains...)
	}
	return res, r.judge(ctx, &res)
}

type runner struct {
	opts Options
	in   *rig.Installation
	jars string
	fill *filler
}

// prepare makes Debezium's slot before the first row, and its topic with as many partitions.
func (r *runner) prepare(ctx context.Context) (err error) {
	conn, err := pgx.Connect(ctx, r.in.Database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, ddlPublication); err != nil {
		return fmt.Errorf("make the publication: %w", err)
	}
	if _, err := conn.Exec(ctx, sqlSlot); err != nil {
		return fmt.Errorf("make the slot: %w", err)
	}
	var partitions, buckets int
	if err := conn.QueryRow(ctx, sqlPartitionCount).Scan(&partitions, &buckets); err != nil {
		return err
	}
	if err := embedded.CreateTopic(ctx, r.in.Kafka, debeziumTopic, partitions); err != nil {
		return err
	}
	r.fill, err = newFiller(ctx, r.in.Database, r.opts.Devices)
	return err
}

// pair fills the outbox once and measures both; the order changes from pair to pair.
func (r *runner) pair(ctx context.Context, n int) ([]Drain, error) {
	if err := r.fill.fill(ctx, r.opts.Rows); err != nil {
		return nil, err
	}
	measures := []func(context.Context) (Drain, error){r.hubstate, r.debezium}
	if n%2 == 1 {
		measures[0], measures[1] = measures[1], measures[0]
	}
	var drains []Drain
	for _, measure := range measures {
		d, err := measure(ctx)
		if err != nil {
			return drains, err
		}
		fmt.Fprintf(r.opts.Out, "%-9s %8.0f records/s, second half %8.0f/s; CPU s: client %.1f, PostgreSQL %.1f, Kafka %.1f; %.0f MiB\n",
			d.Peer, d.PerSecond, d.SecondHalf, d.ClientCPU, d.ServerCPU, d.KafkaCPU, d.MemoryMiB)
		drains = append(drains, d)
	}
	return drains, nil
}

func (r *runner) hubstate(ctx context.Context) (Drain, error) {
	before, err := count(ctx, r.in.Kafka, r.in.Topic)
	if err != nil {
		return Drain{}, err
	}
	return r.measure(ctx, Hubstate, r.in.Topic, before, func() (int, func(), error) {
		members, err := r.in.Members(rig.Relay)
		if err != nil {
			return 0, nil, err
		}
		return 0, func() { _ = members[0].Terminate(ctx) }, members[0].Start(ctx)
	})
}

func (r *runner) debezium(ctx context.Context) (Drain, error) {
	before, err := count(ctx, r.in.Kafka, debeziumTopic)
	if err != nil {
		return Drain{}, err
	}
	return r.measure(ctx, Debezium, debeziumTopic, before, func() (int, func(), error) {
		c, err := startConnect(r.jars, r.opts.Dir, r.in.Database, r.in.Kafka, debeziumTopic)
		if err != nil {
			return 0, nil, err
		}
		return c.cmd.Process.Pid, c.stop, nil
	})
}

// measure starts a peer, watches the topic until all rows are there, and stops it. start returns the process to sample
// when it is not one of the installation's.
func (r *runner) measure(ctx context.Context, name, topic string, before int64, start func() (int, func(), error)) (Drain, error) {
	d := Drain{Peer: name}
	sampler := rig.NewSampler()
	sampler.Sample(r.in.Processes())
	idle := sampler.Sample(r.in.Processes())
	began := time.Now()
	pid, stop, err := start()
	if err != nil {
		return d, err
	}
	defer stop()
	var usage map[string]rig.Usage
	client := rig.Relay
	sample := func() {
		processes := r.in.Processes()
		if pid > 0 {
			client = name
			processes[name+"/1"] = pid
		}
		usage = sampler.Sample(processes)
		d.MemoryMiB = max(d.MemoryMiB, float64(usage[client].RSS)/(1<<20))
	}
	a, err := awaitArrival(ctx, r.in.Kafka, topic, before, int64(r.opts.Rows), sample)
	if err != nil {
		return d, fmt.Errorf("%w; see %s", err, filepath.Join(r.opts.Dir, name+".log"))
	}
	sample()
	d.PerSecond, d.SecondHalf = a.rate(int64(r.opts.Rows))
	d.ToLast = a.Last.Sub(began).Seconds()
	d.ClientCPU = (usage[client].CPU - idle[client].CPU).Seconds()
	d.ServerCPU = (usage[rig.Postgres].CPU - idle[rig.Postgres].CPU).Seconds()
	d.KafkaCPU = (usage[rig.Kafka].CPU - idle[rig.Kafka].CPU).Seconds()
	return d, nil
}

// judge reads both topics.
func (r *runner) judge(ctx context.Context, res *Result) error {
	res.Repeated, res.Disordered = map[string]int64{}, map[string]int64{}
	for name, topic := range map[string]string{Hubstate: r.in.Topic, Debezium: debeziumTopic} {
		repeated, disordered, err := order(ctx, r.in.Kafka, topic)
		if err != nil {
			return err
		}
		res.Repeated[name], res.Disordered[name] = repeated, disordered
		fmt.Fprintf(r.opts.Out, "%-9s %d records repeated, %d out of order\n", name, repeated, disordered)
	}
	return nil
}
