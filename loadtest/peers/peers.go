package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/loadtest/rig"
)

// Options says what is compared.
type Options struct {
	Rows          int // of each drain
	WatermillRows int // of each of watermill's drains
	Singles       int // rows of light load
	KillRows      int // backlog amid which a peer is killed; watermill's is at most WatermillRows
	Devices       int
	Pairs         int      // drains of each, in turn
	Only          []string // names of peers; empty: all
	Dir           string
	Bin           string // of the relay and watermill's program
	Out           io.Writer
}

// Names of what is compared.
const (
	Hubstate  = "hubstate"
	Debezium  = "debezium"
	Watermill = "watermill"
)

// Names lists what can be compared.
func Names() []string { return []string{Hubstate, Debezium, Watermill} }

// Validate returns all problems joined.
func (o *Options) Validate() error {
	var errs []error
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			errs = append(errs, fmt.Errorf("--only: %q is none of %v", name, Names()))
		}
	}
	for flag, n := range map[string]int{"--rows": o.Rows, "--watermill-rows": o.WatermillRows, "--singles": o.Singles, "--kill-rows": o.KillRows, "--devices": o.Devices, "--pairs": o.Pairs} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("%s: must be at least 1", flag))
		}
	}
	return errors.Join(errs...)
}

// peer is one of what is compared.
type peer struct {
	name     string
	rows     int // of a drain
	killRows int
	fill     *filler
	topic    *reader
	start    func(ctx context.Context) (process, error)
}

type runner struct {
	opts  Options
	in    *rig.Installation
	peers []*peer
}

// Run measures all peers one after the other, never two at a time, in each of the three situations.
func Run(ctx context.Context, opts Options) (res Result, err error) {
	if err := opts.Validate(); err != nil {
		return res, err
	}
	in, err := rig.StartForRelay(ctx, rig.Options{Dir: opts.Dir, Bin: opts.Bin, Topic: "device-state"})
	defer func() { err = errors.Join(err, in.Close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return res, err
	}
	r := &runner{opts: opts, in: in}
	if err := r.prepare(ctx); err != nil {
		return res, err
	}
	res.Rows, res.WatermillRows = opts.Rows, opts.WatermillRows
	if res.Drains, err = r.drains(ctx); err != nil {
		return res, err
	}
	for _, p := range r.peers {
		s, err := r.underLightLoad(ctx, p)
		if err != nil {
			return res, err
		}
		res.Singles = append(res.Singles, s)
	}
	for _, p := range r.peers {
		k, err := r.underKill(ctx, p)
		if err != nil {
			return res, err
		}
		res.Kills = append(res.Kills, k)
	}
	res.compare()
	return res, nil
}

func (r *runner) wanted(name string) bool {
	return len(r.opts.Only) == 0 || slices.Contains(r.opts.Only, name)
}

// prepare makes tables, topics and Debezium's slot before the first row.
func (r *runner) prepare(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, r.in.Database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var partitions, buckets int
	if err := conn.QueryRow(ctx, sqlPartitionCount).Scan(&partitions, &buckets); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, sqlEnsurePartition); err != nil {
		return fmt.Errorf("make the partition: %w", err)
	}
	outbox, err := newFiller(ctx, r.in.Database, r.opts.Devices)
	if err != nil {
		return err
	}
	if r.wanted(Hubstate) {
		if err := r.addHubstate(outbox); err != nil {
			return err
		}
	}
	if r.wanted(Debezium) {
		if err := r.addDebezium(ctx, conn, outbox, partitions); err != nil {
			return err
		}
	}
	if r.wanted(Watermill) {
		return r.addWatermill(ctx, partitions)
	}
	return nil
}

func (r *runner) add(name, topic string, fill *filler, rows, killRows int, start func(ctx context.Context) (process, error)) {
	r.peers = append(r.peers, &peer{
		name: name, rows: rows, killRows: killRows, fill: fill, start: start,
		topic: &reader{brokers: r.in.Kafka, topic: topic, tally: newTally()},
	})
}

func (r *runner) addHubstate(outbox *filler) error {
	members, err := r.in.Members(rig.Relay)
	if err != nil {
		return err
	}
	r.add(Hubstate, r.in.Topic, outbox, r.opts.Rows, r.opts.KillRows, func(ctx context.Context) (process, error) {
		return members[0], members[0].Start(ctx)
	})
	return nil
}

func (r *runner) addDebezium(ctx context.Context, conn *pgx.Conn, outbox *filler, partitions int) error {
	const topic = "debezium-state"
	jars, err := fetchDebezium(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, ddlPublication); err != nil {
		return fmt.Errorf("make the publication: %w", err)
	}
	if _, err := conn.Exec(ctx, sqlSlot); err != nil {
		return fmt.Errorf("make the slot: %w", err)
	}
	if err := embedded.CreateTopic(ctx, r.in.Kafka, topic, partitions); err != nil {
		return err
	}
	r.add(Debezium, topic, outbox, r.opts.Rows, r.opts.KillRows, func(context.Context) (process, error) {
		return startConnect(jars, r.opts.Dir, r.in.Database, r.in.Kafka, topic)
	})
	return nil
}

func (r *runner) addWatermill(ctx context.Context, partitions int) error {
	const topic = "watermill-state"
	path, err := findWatermill(r.opts.Bin)
	if err != nil {
		return err
	}
	if err := initWatermill(ctx, path, r.in.Database); err != nil {
		return err
	}
	if err := embedded.CreateTopic(ctx, r.in.Kafka, topic, partitions); err != nil {
		return err
	}
	fill, err := newWatermillFiller(ctx, r.in.Database, min(r.opts.Devices, r.opts.WatermillRows))
	if err != nil {
		return err
	}
	log := filepath.Join(r.opts.Dir, Watermill+".log")
	r.add(Watermill, topic, fill, r.opts.WatermillRows, min(r.opts.KillRows, r.opts.WatermillRows), func(context.Context) (process, error) {
		return startChild(log, path, watermillArgs(r.in.Database, r.in.Kafka, topic)...)
	})
	return nil
}
