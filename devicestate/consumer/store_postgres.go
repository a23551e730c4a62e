package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// PostgresHandler handles deliveries of one partition, in order, inside tx: what it writes there is committed together
// with the positions, or not at all. It must not commit or roll back, and must return the errors of its statements. It is
// called again after a rollback, so effects outside tx may repeat.
type PostgresHandler func(ctx context.Context, tx pgx.Tx, deliveries []*Delivery) error

// PostgresStore keeps positions and offsets in the tables of PostgresSchema and moves them in the handler's transaction.
type PostgresStore struct {
	pool   *pgxpool.Pool
	name   string
	handle PostgresHandler
}

// NewPostgresStore returns the store of the consumer called name. handle may be nil when Config.Handler is all there is. pool
// should have at least Config.Concurrency connections. It does not connect.
func NewPostgresStore(pool *pgxpool.Pool, name string, handle PostgresHandler) *PostgresStore {
	return &PostgresStore{pool: pool, name: name, handle: handle}
}

// validate is asked by New.
func (s *PostgresStore) validate() error {
	if s.pool == nil || s.name == "" {
		return errors.New("consumer config: PostgresStore: pool and name are required")
	}
	return nil
}

// Resume implements Store.
func (s *PostgresStore) Resume(ctx context.Context, topic string, committed map[int32]int64) (map[int32]Resume, error) {
	partitions := make([]int32, 0, len(committed))
	stored := make(map[int32]int64, len(committed))
	for partition := range committed {
		partitions = append(partitions, partition)
		stored[partition] = Unknown
	}
	rows, err := s.pool.Query(ctx, sqlResume, s.name, topic, partitions)
	if err != nil {
		return nil, fmt.Errorf("read consumer offsets: %w", err)
	}
	var partition int32
	var offset int64
	if _, err := pgx.ForEachRow(rows, []any{&partition, &offset}, func() error {
		stored[partition] = offset
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read consumer offsets: %w", err)
	}
	resume := make(map[int32]Resume, len(committed))
	for partition, offset := range committed {
		resume[partition] = resumeAt(offset, stored[partition])
	}
	return resume, nil
}

// Process implements Store.
func (s *PostgresStore) Process(ctx context.Context, b *Batch, handle Handler) error {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return fmt.Errorf("begin consumer transaction: %w", err)
	}
	// After a commit it does nothing; before, it must not be stopped by a cancelled ctx.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()

	offset, stored, err := s.lock(ctx, tx, b)
	if err != nil {
		return err
	}
	if b.committedBefore(offset, stored) {
		return nil
	}
	if err := behind(b.Confirmed, offset); err != nil {
		return err
	}
	moved := b.Gate(stored)
	if err := s.effects(ctx, tx, b, handle); err != nil {
		return err
	}
	confirmed, err := s.advance(ctx, tx, b, stored, moved)
	if err != nil {
		return err
	}
	b.uncertain = &commitAttempt{positions: moved, verdicts: b.verdicts()}
	if err := tx.Commit(ctx); err != nil {
		return s.commitError(b, err)
	}
	b.uncertain, b.Confirmed = nil, confirmed
	return nil
}

// lock makes concurrent owners of the partition take turns and then reads. The first batch of a partition makes its row.
func (s *PostgresStore) lock(ctx context.Context, tx pgx.Tx, b *Batch) (int64, []devicestate.Position, error) {
	offset, stored, err := s.read(ctx, tx, b)
	if !errors.Is(err, pgx.ErrNoRows) {
		return offset, stored, err
	}
	if b.Confirmed >= 0 {
		return 0, nil, &BehindError{Confirmed: b.Confirmed, Stored: Unknown}
	}
	if _, err := tx.Exec(ctx, sqlBeginOffset, s.name, b.Topic, b.Partition); err != nil {
		return 0, nil, fmt.Errorf("begin consumer offset: %w", err)
	}
	return s.read(ctx, tx, b)
}

func (s *PostgresStore) read(ctx context.Context, tx pgx.Tx, b *Batch) (offset int64, stored []devicestate.Position, err error) {
	streams := b.Streams()
	devices, names := make([]string, len(streams)), make([]string, len(streams))
	for i, key := range streams {
		devices[i], names[i] = key.Device, key.Stream
	}
	var pipeline pgx.Batch
	pipeline.Queue(sqlLockOffset, s.name, b.Topic, b.Partition).QueryRow(func(row pgx.Row) error { return row.Scan(&offset) })
	stored = make([]devicestate.Position, len(streams))
	pipeline.Queue(sqlReadPositions, s.name, devices, names).Query(func(rows pgx.Rows) error {
		var at int64
		var p devicestate.Position
		_, err := pgx.ForEachRow(rows, []any{&at, &p.Epoch, &p.Sequence}, func() error {
			stored[at-1] = p
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, &pipeline).Close(); err != nil {
		return 0, nil, fmt.Errorf("read consumer positions: %w", err)
	}
	return offset, stored, nil
}

// effects calls both handlers. What the server or the network did to them is no fault of the events.
func (s *PostgresStore) effects(ctx context.Context, tx pgx.Tx, b *Batch, handle Handler) error {
	err := b.handleAccepted(ctx, handle)
	if accepted := b.Accepted(); err == nil && s.handle != nil && len(accepted) > 0 {
		err = s.handle(ctx, tx, accepted)
	}
	if err == nil {
		return nil
	}
	if tx.Conn().IsClosed() || isServerFault(err) {
		return Outage(err)
	}
	return byHandler(ctx, err)
}

// advance moves the positions that have changed, and the offset.
func (s *PostgresStore) advance(ctx context.Context, tx pgx.Tx, b *Batch, stored, moved []devicestate.Position) (int64, error) {
	var devices, names []string
	var epochs, sequences []int64
	for i, key := range b.Streams() {
		if moved[i] != stored[i] {
			devices, names = append(devices, key.Device), append(names, key.Stream)
			epochs, sequences = append(epochs, moved[i].Epoch), append(sequences, moved[i].Sequence)
		}
	}
	var pipeline pgx.Batch
	pipeline.Queue(sqlMovePositions, s.name, devices, names, epochs, sequences).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(len(devices)) {
			return fmt.Errorf("%d of %d positions moved: another owner is at work", tag.RowsAffected(), len(devices))
		}
		return nil
	})
	var confirmed int64
	pipeline.Queue(sqlMoveOffset, s.name, b.Topic, b.Partition, b.Next).QueryRow(func(row pgx.Row) error { return row.Scan(&confirmed) })
	if err := tx.SendBatch(ctx, &pipeline).Close(); err != nil {
		return 0, s.advanceError(err)
	}
	return confirmed, nil
}

// advanceError: a handler that swallowed the error of a statement leaves a transaction in which nothing works any more.
func (s *PostgresStore) advanceError(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "25P02" {
		return mark(attempt, fmt.Errorf("move consumer positions: %w (hint: the handler must return the errors of its statements)", err))
	}
	return fmt.Errorf("move consumer positions: %w", err)
}

// commitError: unless the server said no, nobody knows whether it happened. The next attempt on this batch looks.
func (s *PostgresStore) commitError(b *Batch, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) || errors.Is(err, pgx.ErrTxCommitRollback) {
		b.uncertain = nil
	}
	if pg != nil && !isServerFault(err) {
		return mark(attempt, fmt.Errorf("commit consumer transaction: %w", err)) // a deferred constraint of the effect
	}
	return fmt.Errorf("commit consumer transaction: %w", err)
}

// commitAttempt is what a COMMIT without an answer would have made true.
type commitAttempt struct {
	positions []devicestate.Position
	verdicts  []devicestate.Verdict
}

func (b *Batch) verdicts() []devicestate.Verdict {
	verdicts := make([]devicestate.Verdict, len(b.Deliveries))
	for i, d := range b.Deliveries {
		verdicts[i] = d.Verdict
	}
	return verdicts
}

// committedBefore finds out whether a COMMIT whose answer was lost took place; its verdicts are then the true ones.
func (b *Batch) committedBefore(offset int64, stored []devicestate.Position) bool {
	u := b.uncertain
	b.uncertain = nil
	if u == nil || offset < b.Next {
		return false
	}
	for i := range stored {
		if stored[i] != u.positions[i] {
			return false
		}
	}
	for i, d := range b.Deliveries {
		d.Verdict = u.verdicts[i]
	}
	b.Confirmed = offset
	return true
}

// Position returns the last (epoch, sequence) seen of a stream; zero when none.
func (s *PostgresStore) Position(ctx context.Context, device, stream string) (devicestate.Position, error) {
	var p devicestate.Position
	err := s.pool.QueryRow(ctx, sqlPosition, s.name, device, stream).Scan(&p.Epoch, &p.Sequence)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return p, fmt.Errorf("read consumer position: %w", err)
	}
	return p, nil
}

// isServerFault tells what happens to a database from what a statement did wrong: connection lost (08), transaction
// rolled back by a conflict (40), no resources (53), lock or object not available (55), operator intervention (57), system error (58), and
// a server that became read-only, which is a failover.
func isServerFault(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return pgconn.SafeToRetry(err) || pgconn.Timeout(err)
	}
	switch class := pg.Code[:min(2, len(pg.Code))]; class {
	case "08", "40", "53", "55", "57", "58":
		return true
	}
	return pg.Code == "25006"
}
