package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Querier runs statements: a connection, a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Drained reports whether each row of the partition (a table name) is at or below the cursor of its own bucket, so that
// nothing undecided is in it (P2); otherwise why not. It is only an answer about rows that are visible: the caller must
// first have raised the commit floor to the partition's upper bound and passed LockBuckets, so that no writer can still
// add a row to it.
func Drained(ctx context.Context, q Querier, partition string) (bool, string, error) {
	var bucket int16
	var position, cursor int64
	err := q.QueryRow(ctx, fmt.Sprintf(undecidedRow, pgx.Identifier{partition}.Sanitize())).Scan(&bucket, &position, &cursor)
	if errors.Is(err, pgx.ErrNoRows) {
		return true, "", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("look for undecided rows of %s: %w", partition, err)
	}
	return false, fmt.Sprintf("bucket %d stands at %d, before position %d", bucket, cursor, position), nil
}

// Beginner opens transactions: a connection or a pool.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// LockBuckets takes and releases the lock of each bucket once. When it returns nil, every transaction that held one of
// them before the call has ended. One bucket at a time: a writer waits for none but its own.
func LockBuckets(ctx context.Context, db Beginner, buckets int) error {
	for b := range buckets {
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, lockOneBucket, LockClass, int32(b))
			return err
		})
		if err != nil {
			return fmt.Errorf("pass lock of bucket %d: %w", b, err)
		}
	}
	return nil
}
