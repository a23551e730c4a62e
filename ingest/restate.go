package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// restater emits current states again, each under the next sequence of its stream: for an operator, for a moved device,
// and for streams that are owed an event. It holds the bucket locks, as every writer of device_state does.
// Not safe for concurrent use.
type restater struct {
	pool    *pgxpool.Pool
	buckets int
	ids     messageIDs
	txn     outbox.Txn
}

func newRestater(pool *pgxpool.Pool, buckets int) *restater {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails, says its documentation
	return &restater{pool: pool, buckets: buckets, ids: messageIDs{mathrand.NewChaCha8(seed)}}
}

// pick says which streams are restated.
type pick struct {
	devices []string
	stream  string // empty = all
	owed    bool   // only those that are owed an event
	hub     string // moves the device to it; empty = stays
	audit   *auditEntry
}

// auditEntry is who did what and why; it commits together with it.
type auditEntry struct{ actor, action, subject, reason string }

func (a *auditEntry) queue(b *pgx.Batch, detail map[string]any) {
	if a != nil {
		b.Queue(insertAudit, a.actor, a.action, a.subject, a.reason, detail)
	}
}

// restated is one stream that was said again.
type restated struct {
	device, stream string
	state          devicestate.State
}

// run restates what p picks in one transaction and returns it.
func (r *restater) run(ctx context.Context, p pick) ([]restated, error) {
	for {
		done, err := r.try(ctx, p)
		if !missingPartition(err) {
			return done, err
		}
		var name string
		if err := r.pool.QueryRow(ctx, ensurePartition, r.txn.CreatedAt()).Scan(&name); err != nil {
			return nil, fmt.Errorf("ensure partition: %w", err)
		}
	}
}

func (r *restater) try(ctx context.Context, p pick) ([]restated, error) {
	var found []restated
	err := twoTrips(ctx, r.pool,
		func(b *pgx.Batch) {
			r.txn.Begin(b, r.buckets, p.devices)
			b.Queue(readStates, p.devices, p.stream, p.owed).Query(func(rows pgx.Rows) (err error) {
				found, err = pgx.CollectRows(rows, scanRestated)
				return err
			})
		},
		func(b *pgx.Batch) error { return r.say(b, p, found) })
	return found, err
}

func scanRestated(row pgx.CollectableRow) (restated, error) {
	var v restated
	var counter, boot *int64
	var occurred *time.Time
	s := &v.state
	err := row.Scan(&v.device, &v.stream, &s.Hub, &s.Epoch, &s.Sequence, &counter, &boot, &occurred, &s.ReceivedAt, &s.ClockSuspect,
		&s.Retained, &s.Content, &s.Missed, &s.Late, &s.Duplicate, &s.Quarantined)
	if counter != nil {
		s.Counter = devicestate.Some(*counter)
	}
	if boot != nil {
		s.Boot = devicestate.Some(*boot)
	}
	if occurred != nil {
		s.OccurredAt = *occurred
	}
	return v, err
}

// say queues the events, the moved sequences and the audit.
func (r *restater) say(b *pgx.Batch, p pick, found []restated) error {
	now := r.txn.CreatedAt()
	var devices, streams, hubs []string
	var sequences []int64
	for i := range found {
		v := &found[i]
		if p.hub != "" {
			v.state.Hub = p.hub
		}
		var e devicestate.Event
		e, v.state = devicestate.Restate(r.ids.next(now), v.device, v.stream, v.state, now)
		m := outbox.Message{
			ID: e.MessageID, AggregateType: devicestate.AggregateType, AggregateID: e.Device, EventType: devicestate.EventType,
			SchemaVersion: devicestate.SchemaVersion, Stream: e.Stream, Epoch: e.Epoch, Sequence: e.Sequence,
			Source: devicestate.Source(e.Hub), OccurredAt: e.OccurredAt, Payload: devicestate.AppendEvent(nil, &e),
		}
		if err := r.txn.Append(&m); err != nil {
			return err
		}
		devices, streams = append(devices, v.device), append(streams, v.stream)
		hubs, sequences = append(hubs, v.state.Hub), append(sequences, v.state.Sequence)
	}
	if len(found) == 0 {
		return nil
	}
	b.Queue(moveStates, devices, streams, hubs, sequences, now)
	if err := r.txn.Queue(b); err != nil {
		return err
	}
	p.audit.queue(b, map[string]any{"streams": streams, "sequences": sequences, "hub": p.hub})
	return nil
}

// twoTrips runs one transaction in two round trips: first sends BEGIN and what first queues, second what it queues and
// COMMIT.
func twoTrips(ctx context.Context, pool *pgxpool.Pool, first func(*pgx.Batch), second func(*pgx.Batch) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release() // ends an open transaction by closing the connection
	var one, two pgx.Batch
	one.Queue(begin)
	first(&one)
	if err := conn.SendBatch(ctx, &one).Close(); err != nil {
		return fmt.Errorf("lock and read: %w", err)
	}
	if err := second(&two); err != nil {
		return err
	}
	two.Queue(commit)
	if err := conn.SendBatch(ctx, &two).Close(); err != nil {
		return fmt.Errorf("write and commit: %w", err)
	}
	return nil
}

// owedSweep emits one event for each stream that is owed one, once the outbox is below its cap again.
type owedSweep struct {
	restater *restater
	outbox   *capacity
	report   func(error)
	metrics  *metrics
}

const owedBatch = 500

func (o *owedSweep) run(ctx context.Context) error {
	for sleep(ctx, o.outbox.every) == nil {
		for !o.outbox.full.Load() {
			n, err := o.sweep(ctx)
			if err != nil && ctx.Err() == nil {
				o.report(err)
			}
			if err != nil || n == 0 {
				break
			}
		}
	}
	return nil
}

func (o *owedSweep) sweep(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	rows, err := o.restater.pool.Query(ctx, readOwed, owedBatch)
	if err != nil {
		return 0, fmt.Errorf("read owed streams: %w", err)
	}
	devices, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(devices) == 0 {
		return 0, err
	}
	done, err := o.restater.run(ctx, pick{devices: devices, owed: true})
	o.metrics.events.Add(float64(len(done)))
	return len(done), err
}

// ErrUnknownDevice is returned when a device or stream has no state.
var ErrUnknownDevice = errors.New("no such device or stream has a state here")
