package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// apply carries a plan out. The order matters: what is superseded is found by the old cursors, the restated rows lie
// above the new ones.
func (r *rebaser) apply(ctx context.Context, tx pgx.Tx, p *rebasePlan) error {
	do := func(what, sql string, args ...any) error {
		if _, err := tx.Exec(ctx, sql, args...); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	if err := do("supersede unpublished rows", supersedeRows); err != nil {
		return err
	}
	if err := do("forget skipped ranges", forgetSkipped); err != nil {
		return err
	}
	if err := do("discard parked rows", discardParked, r.decision.By); err != nil {
		return err
	}
	if err := do("release heads", releaseHeads); err != nil {
		return err
	}
	if err := r.moveBuckets(ctx, tx, p.ends); err != nil {
		return err
	}
	if err := do("raise epoch", raiseEpoch, p.NewEpoch, r.target.Topic, r.target.TopicPartitions); err != nil {
		return err
	}
	if err := r.restateAll(ctx, tx, p.NewEpoch); err != nil {
		return err
	}
	return do("audit", auditRebase, r.decision.By, "rebase", "cell "+r.settings.Cell, r.decision.Reason, map[string]any{
		"topic": r.target.Topic, "old_epoch": p.OldEpoch, "new_epoch": p.NewEpoch, "restated": p.Restated, "superseded": p.Superseded, "discarded": p.Discarded,
	})
}

func (r *rebaser) moveBuckets(ctx context.Context, tx pgx.Tx, ends []bucketEnd) error {
	var buckets []int16
	var cursors []int64
	var ids []pgtype.UUID
	var onTopic []bool
	var highest int64
	for i := range ends {
		position, id, on := ends[i].next()
		buckets, cursors, onTopic = append(buckets, ends[i].bucket), append(cursors, position), append(onTopic, on)
		ids = append(ids, pgtype.UUID{Bytes: id, Valid: id != [16]byte{}})
		highest = max(highest, position)
	}
	if _, err := tx.Exec(ctx, rebaseBuckets, buckets, cursors, ids, onTopic); err != nil {
		return fmt.Errorf("move cursors: %w", err)
	}
	if _, err := tx.Exec(ctx, raisePosition, highest); err != nil {
		return fmt.Errorf("raise position: %w", err)
	}
	return nil
}

// restateBatch is how many streams are restated at once.
const restateBatch = 1000

// restateAll says the current state of every stream again as its first event of the epoch. A stream that never emitted
// (policy emit: none) stays silent and only moves to the epoch.
func (r *rebaser) restateAll(ctx context.Context, tx pgx.Tx, epoch int64) error {
	var device, stream string
	for {
		batch, err := readStreams(ctx, tx, device, stream)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return nil
		}
		if err := r.restate(ctx, tx, batch, epoch); err != nil {
			return fmt.Errorf("restate streams: %w", err)
		}
		last := &batch[len(batch)-1]
		device, stream = last.device, last.stream
	}
}

// storedStream is what restating needs of a row of device_state.
type storedStream struct {
	device, stream string
	state          devicestate.State
}

func readStreams(ctx context.Context, tx pgx.Tx, device, stream string) ([]storedStream, error) {
	rows, err := tx.Query(ctx, selectStreams, device, stream, restateBatch)
	if err != nil {
		return nil, fmt.Errorf("read streams: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (storedStream, error) {
		var s storedStream
		st := &s.state
		var counter, boot pgtype.Int8
		var occurred pgtype.Timestamptz
		err := row.Scan(&s.device, &s.stream, &st.Hub, &st.Sequence, &counter, &boot, &occurred, &st.ReceivedAt, &st.ClockSuspect, &st.Retained,
			&st.Content, &st.Missed, &st.Late, &st.Duplicate, &st.Quarantined, &st.Owed)
		st.Counter = devicestate.Number{V: counter.Int64, OK: counter.Valid}
		st.Boot = devicestate.Number{V: boot.Int64, OK: boot.Valid}
		st.OccurredAt = occurred.Time
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("read streams: %w", err)
	}
	return all, nil
}

func (r *rebaser) restate(ctx context.Context, tx pgx.Tx, batch []storedStream, epoch int64) error {
	var first, second pgx.Batch
	txn := outbox.Begin(&first, r.settings.Buckets, keysOf(batch))
	if err := tx.SendBatch(ctx, &first).Close(); err != nil {
		return err
	}
	moved := movedStreams{}
	for i := range batch {
		s := &batch[i]
		s.state.Epoch = epoch
		if s.state.Sequence == 0 && !s.state.Owed {
			moved.add(s, time.Time{})
			continue
		}
		if err := appendRestated(txn, s); err != nil {
			return err
		}
		moved.add(s, txn.CreatedAt())
	}
	if err := txn.Queue(&second); err != nil {
		return err
	}
	second.Queue(moveStreams, epoch, moved.devices, moved.streams, moved.sequences, moved.emitted)
	return tx.SendBatch(ctx, &second).Close()
}

func appendRestated(txn *outbox.Txn, s *storedStream) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make message id: %w", err)
	}
	var e devicestate.Event
	e, s.state = devicestate.Restate(id, s.device, s.stream, s.state, txn.CreatedAt())
	return txn.Append(&outbox.Message{
		ID: id, AggregateType: devicestate.AggregateType, AggregateID: s.device, EventType: devicestate.EventType,
		SchemaVersion: devicestate.SchemaVersion, Stream: s.stream, Epoch: e.Epoch, Sequence: e.Sequence,
		Source: devicestate.Source(e.Hub), OccurredAt: e.OccurredAt, Payload: devicestate.AppendEvent(nil, &e),
	})
}

// movedStreams are the arrays of moveStreams.
type movedStreams struct {
	devices, streams []string
	sequences        []int64
	emitted          []pgtype.Timestamptz // null = nothing was said
}

func (m *movedStreams) add(s *storedStream, emittedAt time.Time) {
	m.devices, m.streams, m.sequences = append(m.devices, s.device), append(m.streams, s.stream), append(m.sequences, s.state.Sequence)
	m.emitted = append(m.emitted, pgtype.Timestamptz{Time: emittedAt, Valid: !emittedAt.IsZero()})
}

func keysOf(batch []storedStream) []string {
	keys := make([]string, len(batch))
	for i := range batch {
		keys[i] = batch[i].device
	}
	return keys
}
