package main

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hubstate/hubstate/loadtest/fleet"
	"github.com/hubstate/hubstate/loadtest/ledger"
	"github.com/hubstate/hubstate/loadtest/oracle"
	"github.com/hubstate/hubstate/loadtest/rig"
	"github.com/hubstate/hubstate/loadtest/subject"
	"github.com/hubstate/hubstate/loadtest/witness"
)

// bench carries out one scenario on a running installation.
type bench struct {
	scenario   Scenario
	seed       uint64
	in         *rig.Installation
	log        *slog.Logger
	out        io.Writer // progress
	dir        string
	ownServers bool

	fleet     *fleet.Fleet
	subject   *subject.Subject
	timetable *rig.Timetable
	progress  *progress
	baseline  witness.Baseline
	offsets   witness.Offsets
	exits     map[string]int // before this run
}

// run sends the load, breaks what the timetable says, waits until all has come to rest, and checks.
func (b *bench) run(ctx context.Context) (*Record, error) {
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = b.subject.Close() }() // everything of it was read or stopped before
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	group, work := errgroup.WithContext(work)
	group.Go(func() error { return ended(work, b.subject.Run(work)) })
	watch, stopWatching := context.WithCancel(work)
	group.Go(func() error { return ended(watch, b.progress.run(watch)) })
	err := b.exercise(work)
	stopWatching()
	record := b.record()
	if err == nil {
		err = b.check(ctx, record)
	}
	cancel()
	return record, errors.Join(err, group.Wait())
}

// runIn is run in the bench's directory, where it leaves ledger and record.
func (b *bench) runIn(ctx context.Context) (*Record, error) {
	if err := os.MkdirAll(b.dir, 0o711); err != nil {
		return nil, fmt.Errorf("make the run's directory: %w", err)
	}
	record, err := b.run(ctx)
	if record != nil {
		err = errors.Join(err, record.save(filepath.Join(b.dir, recordFile)))
	}
	return record, err
}

// ended hides the error of something that was told to end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (b *bench) prepare(ctx context.Context) (err error) {
	b.exits = b.in.Exits()
	if b.scenario.Load.Prefix == "d" {
		b.scenario.Load.Prefix = prefixOf(b.ownServers, time.Now())
	}
	b.baseline, err = witness.ReadBaseline(ctx, b.in.Database)
	if err != nil {
		return err
	}
	b.offsets, err = witness.EndOffsets(ctx, b.in.Kafka, b.in.Topic)
	if err != nil {
		return err
	}
	b.fleet, err = fleet.New(b.scenario.Load, b.scenario.Name, b.seed, b.in.MQTT, b.log)
	if err != nil {
		return err
	}
	group := fmt.Sprintf("loadtest-%s-%d", b.scenario.Load.Prefix, time.Now().UnixNano())
	if err := subject.Begin(ctx, b.in.Kafka, b.in.Topic, group, b.offsets); err != nil {
		return err
	}
	b.subject, err = subject.New(b.fleet.Ledger(), subject.Options{
		Brokers: b.in.Kafka, Topic: b.in.Topic, Group: group, Redis: b.in.Redis, WarmUp: b.scenario.WarmUp, Log: b.log,
	})
	b.progress = newProgress(b)
	return err
}

// exercise runs fleet and timetable side by side, then lets each stream close and the pipeline come to rest.
func (b *bench) exercise(ctx context.Context) error {
	if err := b.await(ctx, 30*time.Second, "the consumer has no partitions", b.subject.Ready); err != nil {
		return err
	}
	start := time.Now()
	b.timetable = rig.NewTimetable(b.in, start)
	b.progress.begin(start)
	group, work := errgroup.WithContext(ctx)
	group.Go(func() error { return b.fleet.Run(work) })
	group.Go(func() error { return b.timetable.Run(work, b.componentFaults(), b.scenario.Load.Duration) })
	group.Go(func() error { return b.disconnects(work, start) })
	group.Go(func() error { return b.troubleTopic(work, start) })
	if err := group.Wait(); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	b.progress.mark("loaded")
	if err := b.fleet.Close(ctx); err != nil {
		return fmt.Errorf("closing reports: %w", err)
	}
	return b.settle(ctx)
}

func (b *bench) componentFaults() []rig.Fault {
	return slices.DeleteFunc(slices.Clone(b.scenario.Faults), func(f rig.Fault) bool { return !onComponents(f) })
}

// disconnects carries out the faults that concern the devices' own connections.
func (b *bench) disconnects(ctx context.Context, start time.Time) error {
	return b.atFaults(ctx, start, fleetName, func(rig.Fault) error { b.fleet.Disconnect(); return nil })
}

// atFaults calls do at the time of each fault that is on something, one after the other; nil when ctx ends first.
func (b *bench) atFaults(ctx context.Context, start time.Time, on string, do func(rig.Fault) error) error {
	for _, f := range b.scenario.Faults {
		if !slices.Contains(f.On, on) {
			continue
		}
		select {
		case <-time.After(time.Until(start.Add(f.At))):
		case <-ctx.Done():
			return nil
		}
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

// await polls a condition.
func (b *bench) await(ctx context.Context, limit time.Duration, what string, holds func() bool) error {
	deadline := time.Now().Add(limit)
	for !holds() {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s after %s", what, limit)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// quiet is how long nothing more may be committed before a pipeline counts as at rest: after trouble the last copies of
// what was delivered twice come when everything else is done.
const quiet = time.Second

// settle waits until the pipeline is at rest: the closing report of each stream was handled, nothing waits in the outbox,
// nothing more is committed. Coming to no rest is no error here: the oracle says what is missing.
func (b *bench) settle(ctx context.Context) error {
	limit := time.Now().Add(b.scenario.Settle)
	var last int64
	moved := time.Now()
	for time.Now().Before(limit) {
		now, err := witness.ReadProgress(ctx, b.in.Database)
		if err != nil {
			moved = time.Now() // it may be the database that recovers
		}
		if now.Committed != last {
			last, moved = now.Committed, time.Now()
		}
		if err == nil && time.Since(moved) > quiet && now.Pending == 0 && b.subject.Reached() {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	fmt.Fprintf(b.out, "not at rest after %s\n", b.scenario.Settle)
	return nil
}

// check reads what the run left behind and asks the oracle.
func (b *bench) check(ctx context.Context, record *Record) error {
	if err := b.fleet.Ledger().Save(filepath.Join(b.dir, ledgerFile)); err != nil {
		return err
	}
	h, err := b.history(ctx)
	if err != nil {
		return err
	}
	record.judge(oracle.Check(h), h, b.scenario.Expect)
	return nil
}

func (b *bench) history(ctx context.Context) (*oracle.History, error) {
	seed := maphash.MakeSeed()
	book := b.fleet.Ledger()
	database, err := witness.ReadDatabase(ctx, b.in.Database, b.scenario.Load.Prefix, book, b.baseline, seed)
	if err != nil {
		return nil, err
	}
	topic, _, err := witness.ReadTopic(ctx, b.in.Kafka, b.in.Topic, b.offsets, book, seed)
	if err != nil {
		return nil, err
	}
	seen, err := b.subject.Seen(ctx)
	if err != nil {
		return nil, err
	}
	screen, err := b.screen(ctx, database)
	if err != nil {
		return nil, err
	}
	return &oracle.History{
		Ledger: book, Database: database, Topic: topic, Consumer: seen, Counted: b.counted(ctx), Screen: screen,
		BrokerHurt: b.scenario.brokerHurt(), Undisturbed: len(b.scenario.Faults) == 0, Resent: b.fleet.Dups.Load(),
	}, nil
}

// screen reads what the monitor shows, again for a while if it is not yet up to date: it is a consumer of its own.
func (b *bench) screen(ctx context.Context, database oracle.Database) (map[ledger.Key]oracle.Shown, error) {
	if b.in.Screen == "" {
		return nil, nil
	}
	for limit := time.Now().Add(b.scenario.Settle); ; {
		screen, err := witness.ReadScreen(ctx, b.in.Screen, b.fleet.Ledger())
		if err != nil && time.Now().After(limit) {
			return nil, err
		}
		if err == nil && (upToDate(screen, b.fleet.Ledger(), database) || time.Now().After(limit)) {
			return screen, nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func upToDate(screen map[ledger.Key]oracle.Shown, book *ledger.Ledger, database oracle.Database) bool {
	for i, s := range database.States {
		stream := book.Streams[i]
		if shown := screen[ledger.Key{Device: stream.Device, Stream: stream.Name}]; shown.Sequence != s.Sequence {
			return false
		}
	}
	return true
}

// counted reads ingest's own counters; they say nothing about a process that was killed.
func (b *bench) counted(ctx context.Context) *oracle.Counted {
	metrics := b.in.Metrics(ctx, rig.Ingest)
	if len(b.scenario.Faults) > 0 || len(metrics) == 0 {
		return nil
	}
	return &oracle.Counted{Received: int64(metrics["ingest_received_total"]), Abandoned: int64(metrics["ingest_abandoned_total"])}
}
