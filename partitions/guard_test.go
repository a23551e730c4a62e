package partitions

import (
	"context"
	"errors"
	"fmt"

	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
)

// outboxDrained is the guard of P2: each row at or below the cursor of its own bucket.
func outboxDrained(ctx context.Context, tx pgx.Tx, partition string) (bool, string, error) {
	var bucket int16
	var position, cursor int64
	err := tx.QueryRow(ctx, fmt.Sprintf(`SELECT b.bucket, p.position, b.cursor FROM outbox_bucket b,
		LATERAL (SELECT position FROM %s WHERE bucket = b.bucket AND position > b.cursor ORDER BY position LIMIT 1) p LIMIT 1`, quoted(partition))).Scan(&bucket, &position, &cursor)
	if errors.Is(err, pgx.ErrNoRows) {
		return true, "", nil
	}
	return false, fmt.Sprintf("bucket %d: row %d lies above its cursor %d", bucket, position, cursor), err
}

// passBucketLocks takes and releases each bucket lock once.
func passBucketLocks(ctx context.Context, conn *pgx.Conn) error {
	for bucket := range testBuckets {
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_xact_lock($1, $2)`, outbox.LockClass, bucket); err != nil {
			return err
		}
	}
	return nil
}
