package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	transactionTimeout = 15 * time.Second // longer than statement_timeout: the server ends its own statements first
	rollbackTimeout    = 2 * time.Second
	maxGuilty          = 100 // reports in a row that the database refused: then it is not the reports
)

// writer is the loop of a lane: take the queue → lock buckets in order → read stored → Next for each → upsert + append +
// gaps + rejects → commit → ack in order. One goroutine owns it.
type writer struct {
	cfg     Config
	lane    *lane
	pool    *pgxpool.Pool
	queue   *queue
	outbox  *capacity
	bell    *outbox.Bell
	metrics *metrics
	log     *slog.Logger
	buckets int

	items  []item
	batch  *batch
	txn    outbox.Txn
	one    pgx.Batch
	two    pgx.Batch
	stored int64  // batch number in the lane's row, as the open transaction read it
	xid    uint32 // number of the last transaction that updated rows
	tail   []byte
	acks   acks
	ids    messageIDs
	guilty int

	flushes chan chan struct{}
	also    func(*pgx.Batch) // commits with the batch; nil = nothing
	now     func() time.Time
	reached func(step) // tests stop here and there; nil otherwise
}

// step is a place in a batch where the world may end.
type step int

const (
	stepBegin    step = iota // before BEGIN
	stepLocked               // locks held, rows read, nothing written
	stepAnswered             // COMMIT was answered
	stepAck                  // before the acks leave
	stepFound                // an earlier try had committed although its answer was lost
)

func (w *writer) at(s step) {
	if w.reached != nil {
		w.reached(s)
	}
}

func newWriter(cfg Config, l *lane, q *queue, s *Service) *writer {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails, says its documentation
	return &writer{
		cfg: cfg, lane: l, pool: s.pool, queue: q, outbox: s.outbox, bell: s.bell, metrics: s.metrics, log: s.log.With("lane", l.name), buckets: s.buckets,
		batch: newBatch(), ids: messageIDs{mathrand.NewChaCha8(seed)}, flushes: make(chan chan struct{}), now: time.Now, reached: s.reached,
	}
}

// run writes until ctx ends or the lane is lost. Batches form by themselves: what arrived during a commit is the next one.
func (w *writer) run(ctx context.Context) error {
	renewal := time.NewTicker(w.lane.ttl / 3)
	defer renewal.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-renewal.C:
			if err := w.renew(ctx); err != nil {
				return err
			}
		case <-w.queue.ready:
			if err := w.drain(ctx, renewal); err != nil {
				return err
			}
		case done := <-w.flushes:
			err := w.drain(ctx, renewal)
			close(done)
			if err != nil {
				return err
			}
		}
	}
}

// flush waits until all that was queued before is committed and acknowledged.
func (w *writer) flush(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case w.flushes <- done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// renew keeps the lease of an idle lane. A database that does not answer is no loss: nobody else can claim either.
func (w *writer) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.lane.ttl/3)
	defer cancel()
	err := w.lane.renew(ctx)
	if errors.Is(err, errLaneLost) {
		return err
	}
	if err != nil && ctx.Err() == nil {
		w.log.Warn("lane not renewed", "error", err)
	}
	return nil
}

func (w *writer) drain(ctx context.Context, renewal *time.Ticker) error {
	for ctx.Err() == nil {
		if err := w.waitForRoom(ctx); err != nil {
			return err
		}
		items, abandoned := w.queue.take(w.items[:0], w.cfg.BatchReports, w.cfg.BatchBytes)
		w.items = items
		w.metrics.abandoned.Add(float64(abandoned))
		if len(items) == 0 {
			return nil
		}
		w.lane.tail.prepare(items)
		for i := range items {
			items[i].report.Redelivered = w.lane.tail.redelivered(&items[i])
		}
		if err := w.store(ctx, items); err != nil {
			return err
		}
		renewal.Reset(w.lane.ttl / 3) // the batch renewed the lease
		clear(items)
	}
	return nil
}

// waitForRoom holds the lane while the outbox is above its cap and the policy is to block. Nothing is acknowledged, so
// the pressure reaches the broker.
func (w *writer) waitForRoom(ctx context.Context) error {
	for w.outbox.blocked() {
		if err := sleep(ctx, w.outbox.pause()); err != nil {
			return nil
		}
		if w.lane.trustedFor(time.Now()) < w.lane.ttl/2 {
			if err := w.renew(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// store commits items, however often it takes, and acknowledges them. It returns only when ctx ends or the lane is lost.
func (w *writer) store(ctx context.Context, items []item) error {
	for try := 0; ; try++ {
		err := w.attempt(ctx, items)
		switch {
		case err == nil:
			w.done(items)
			return nil
		case errors.Is(err, errLaneLost):
			return err
		case ctx.Err() != nil:
			return nil
		case missingPartition(err):
			err = w.ensurePartition(ctx)
		case refusedData(err) && w.guilty < maxGuilty:
			return w.isolate(ctx, items, err)
		case movedRow(err) && try == 0:
			w.metrics.retries.WithLabelValues(retryReason(err)).Inc()
			w.batch.trust.deceived()
			continue // an operator or another writer was there; now everything is read
		}
		if err == nil {
			continue
		}
		w.metrics.retries.WithLabelValues(retryReason(err)).Inc()
		if try&(try-1) == 0 { // 0, 1, 2, 4, 8 …
			w.log.Warn("batch not committed", "error", err, "reports", len(items), "try", try+1)
		}
		if sleep(ctx, backoff(try)) != nil {
			return nil
		}
	}
}

// isolate finds the report that the database refuses by halving, in order of arrival, and quarantines it.
func (w *writer) isolate(ctx context.Context, items []item, cause error) error {
	if len(items) == 1 {
		w.guilty++
		w.log.Warn("report refused by the database", "error", cause, "device", items[0].report.Device)
		quarantine(&items[0], cause)
		return w.store(ctx, items)
	}
	half := len(items) / 2
	if err := w.store(ctx, items[:half]); err != nil || ctx.Err() != nil {
		return err
	}
	return w.store(ctx, items[half:])
}

// quarantine turns a report into a reject; if that was refused too, into one without its bytes.
func quarantine(it *item, cause error) {
	if it.reject != nil {
		it.payload, it.topic = nil, ""
	}
	it.policy = nil
	it.reject = &devicestate.Reject{Reason: devicestate.ReasonDatabase, Detail: "SQLSTATE " + sqlState(cause)}
}

// attempt runs one transaction. Afterwards the batch is committed, or (an error) perhaps: the next attempt finds out by
// the batch number.
func (w *writer) attempt(ctx context.Context, items []item) error {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	conn, err := w.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()
	started := time.Now()
	w.batch.group(items)
	w.at(stepBegin)
	committed, err := w.open(ctx, conn.Conn())
	if err == nil && !committed {
		w.at(stepLocked)
		err = w.finish(ctx, conn.Conn(), items)
	}
	if committed {
		w.at(stepFound)
	}
	if err != nil || committed {
		w.rollback(ctx, conn.Conn())
	}
	if err != nil {
		w.batch.remembers.forget() // whatever has become of the rows
		return err
	}
	w.at(stepAnswered)
	w.lane.batch++
	w.lane.trust(started)
	w.metrics.commitSeconds.Observe(time.Since(started).Seconds())
	return nil
}

// open is the first round trip: BEGIN, the lane's row, the locks of the buckets, then what is stored. committed: an
// earlier attempt of this batch went through although its answer was lost.
func (w *writer) open(ctx context.Context, conn *pgx.Conn) (committed bool, err error) {
	w.one.QueuedQueries = w.one.QueuedQueries[:0]
	w.one.Queue(begin)
	w.one.Queue(lockLane, w.lane.name, w.lane.term).QueryRow(w.scanLane)
	w.txn.Begin(&w.one, w.buckets, w.batch.devices)
	if len(w.batch.asked) > 0 {
		w.one.Queue(readStreams, w.batch.names.devices, w.batch.names.streams).Query(w.batch.scan)
	}
	if err := conn.SendBatch(ctx, &w.one).Close(); err != nil {
		return false, fmt.Errorf("lock and read: %w", err)
	}
	switch w.stored {
	case w.lane.batch:
		return false, nil
	case w.lane.batch + 1:
		return true, nil
	}
	return false, fmt.Errorf("lane %s is at batch %d, expected %d: %w", w.lane.name, w.stored, w.lane.batch, errLaneLost)
}

func (w *writer) scanLane(row pgx.Row) error {
	err := row.Scan(&w.stored)
	if errors.Is(err, pgx.ErrNoRows) {
		return errLaneLost
	}
	return err
}

// finish is the second round trip: decide, write, COMMIT.
func (w *writer) finish(ctx context.Context, conn *pgx.Conn, items []item) error {
	b := w.batch
	b.decide(w.now(), w.txn.Epoch(), w.outbox.withholding())
	if err := b.build(&w.txn, &w.ids, w.buckets); err != nil {
		return err
	}
	w.two.QueuedQueries = w.two.QueuedQueries[:0]
	b.fresh.queueInsert(&w.two)
	b.rows.queueUpdate(&w.two, &w.xid)
	if err := w.txn.Write(ctx, conn, &w.two); err != nil {
		return err
	}
	b.gaps.queue(&w.two)
	b.fills.queue(&w.two)
	b.rejects.queue(&w.two, w.lane.name, w.cfg.Rejects())
	if w.also != nil {
		w.also(&w.two)
	}
	w.tail = w.lane.tail.with(w.tail[:0], items)
	w.two.Queue(updateLane, w.lane.name, w.lane.term, w.lane.batch+1, w.tail, w.lane.ttl.Microseconds(),
		b.counts[devicestate.Applied], b.counts[devicestate.Duplicate], b.counts[devicestate.Late], b.counts[devicestate.Coalesced],
		b.counts[devicestate.Discarded], b.counts[devicestate.Ignored], b.counts[devicestate.Quarantined])
	w.two.Queue(commit)
	if err := conn.SendBatch(ctx, &w.two).Close(); err != nil {
		return fmt.Errorf("write and commit: %w", err)
	}
	b.remember(w.xid)
	if w.txn.Len() > 0 {
		w.bell.Committed()
	}
	return nil
}

// rollback leaves the connection usable; on a broken one the pool finds out itself.
func (w *writer) rollback(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, rollback); err != nil {
		w.log.Debug("rollback failed", "error", err)
	}
}

// ensurePartition makes the partition that the batch needs, in a transaction of its own (P1).
func (w *writer) ensurePartition(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	var name string
	if err := w.pool.QueryRow(ctx, ensurePartition, w.txn.CreatedAt()).Scan(&name); err != nil {
		return fmt.Errorf("ensure partition: %w", err)
	}
	w.log.Info("partition made for a batch", "partition", name)
	return nil
}

// done follows a commit: acknowledge, in order, then count.
func (w *writer) done(items []item) {
	w.lane.tail.committed(items)
	w.at(stepAck)
	w.acks.send(items)
	w.metrics.batch(w.batch, items)
	if w.batch.counts[devicestate.Quarantined] < int64(len(items)) {
		w.guilty = 0
	}
}
