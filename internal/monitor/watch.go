package monitor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
)

// How often the parts are asked, and how long an answer may take. Short, since a page must say within the first second
// that somebody stopped answering.
const (
	askEvery    = 200 * time.Millisecond
	askTimeout  = 600 * time.Millisecond
	tellEvery   = 5 * time.Second // dead letters, rejects: they do not change what the screen vouches for
	pendingUpTo = 1000            // rows counted of each bucket's backlog
)

// watched is what the watchers learnt last; the snapshot reads it.
type watched struct {
	mu       sync.Mutex
	kafka    Health
	consumer Health
	horizon  Horizon
	outbox   *Outbox
}

// watchKafka asks Kafka where its partitions end, for ever. at is taken before the request leaves: what is published while
// it is on its way may not be in the answer.
func (w *watched) watchKafka(ctx context.Context, admin *kadm.Client, topic string) error {
	return every(ctx, askEvery, func(ctx context.Context) {
		at := time.Now()
		ends, err := listEnds(ctx, admin, topic)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.kafka.set(err, time.Now())
		if len(ends) > 0 {
			w.horizon.Ask(at, ends)
		}
	})
}

// listEnds returns the ends that are known even when the error says that some partition has no leader.
func listEnds(ctx context.Context, admin *kadm.Client, topic string) (map[int32]Ends, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, explain(err)
	}
	offsets, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, explain(err)
	}
	ends, leaderless := map[int32]Ends{}, 0
	for p, o := range offsets[topic] {
		if p < 0 {
			return nil, fmt.Errorf("topic %s: %w", topic, o.Err)
		}
		s := starts[topic][p]
		if o.Err != nil || s.Err != nil {
			leaderless++
			err = errors.Join(o.Err, s.Err)
			ends[p] = Ends{Unreachable: true}
			continue
		}
		ends[p] = Ends{Start: s.Offset, End: o.Offset}
	}
	if len(ends) == 0 {
		return nil, fmt.Errorf("topic %s does not exist", topic)
	}
	if leaderless > 0 {
		return ends, fmt.Errorf("%d of %d partitions do not answer: %w", leaderless, len(ends), err)
	}
	return ends, nil
}

func explain(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", askTimeout)
	}
	return err
}

// watchDatabase asks the cell's database for its backlog, for ever.
func (w *watched) watchDatabase(ctx context.Context, pool *pgxpool.Pool) error {
	var toldAt time.Time
	return every(ctx, askEvery, func(ctx context.Context) {
		w.mu.Lock()
		answer := Outbox{}
		if w.outbox != nil {
			answer = *w.outbox
		}
		w.mu.Unlock()
		at := time.Now()
		err := answer.askBacklog(ctx, pool, at)
		if err == nil && at.Sub(toldAt) >= tellEvery {
			err = answer.askUndecided(ctx, pool)
			toldAt = at
		}
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		answer.set(err, time.Now())
		w.outbox = &answer
	})
}

func (o *Outbox) askBacklog(ctx context.Context, pool *pgxpool.Pool, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var oldest float64
	next := *o
	b := &pgx.Batch{}
	b.Queue(selectBacklog, pendingUpTo).QueryRow(func(row pgx.Row) error {
		return row.Scan(&next.Pending, &next.PendingAtMost, &oldest, &next.Unowned, &next.Halted, &next.Outage, &next.Buckets, &next.ErrorCode)
	})
	b.Queue(selectParts).QueryRow(func(row pgx.Row) error {
		return row.Scan(&next.Relays, &next.Lanes, &next.LanesAlive, &next.LanesDown)
	})
	if err := pool.SendBatch(ctx, b).Close(); err != nil {
		return explain(err)
	}
	next.OldestMs, next.AskedAt = int64(oldest*1000), at
	*o = next
	return nil
}

func (o *Outbox) askUndecided(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, tellEvery)
	defer cancel()
	next := *o
	next.Rejects = nil
	var oldest float64
	b := &pgx.Batch{}
	b.Queue(selectUndecided).QueryRow(func(row pgx.Row) error { return row.Scan(&next.Dead, &next.Held, &oldest) })
	b.Queue(selectRejects).Query(func(rows pgx.Rows) (err error) {
		next.Rejects, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ReasonCount])
		return err
	})
	b.Queue(selectPossibleGaps).QueryRow(func(row pgx.Row) error { return row.Scan(&next.PossibleGaps) })
	if err := pool.SendBatch(ctx, b).Close(); err != nil {
		return explain(err)
	}
	next.DeadOldestMs = int64(oldest * 1000)
	*o = next
	return nil
}

// every calls do now and then each interval, until ctx ends. A late call is not made up for.
func every(ctx context.Context, interval time.Duration, do func(context.Context)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		do(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
