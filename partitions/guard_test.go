package partitions

import (
	"context"

	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
)

// The product's guard and barrier, as cmd/relay hands them in.

func outboxDrained(ctx context.Context, tx pgx.Tx, partition string) (bool, string, error) {
	return outbox.Drained(ctx, tx, partition)
}

func passBucketLocks(ctx context.Context, conn *pgx.Conn) error {
	return outbox.LockBuckets(ctx, conn, testBuckets)
}
