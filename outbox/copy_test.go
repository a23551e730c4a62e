package outbox

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A large batch is copied and a small one inserted; nobody downstream may be able to tell.
func TestTxn_CopyAndInsertWriteTheSameRows(t *testing.T) {
	t.Parallel()
	b := setup(t, "127.0.0.1:1")
	for _, mixed := range []bool{false, true} {
		messages := odd(b, copyFrom+10, mixed)
		copied := b.written(messages, (*Txn).Write)
		inserted := b.written(messages, func(txn *Txn, _ context.Context, _ *pgx.Conn, second *pgx.Batch) error { return txn.Queue(second) })
		if len(copied) != len(messages) || !slices.Equal(copied, inserted) {
			for i := range copied {
				if copied[i] != inserted[i] {
					t.Errorf("mixed %v, message %d:\ncopied   %s\ninserted %s", mixed, i, copied[i], inserted[i])
				}
			}
			t.Fatalf("mixed %v: %d messages, %d copied, %d inserted", mixed, len(messages), len(copied), len(inserted))
		}
	}
}

// odd makes n messages of several devices; mixed, no two neighbours have the same optional columns.
func odd(b *bundle, n int, mixed bool) []*Message {
	messages := make([]*Message, n)
	for i := range messages {
		m := b.message(fmt.Sprintf("gerät/%d", i%7), []byte{0, 1, 0xff, byte(i)})
		if i%3 > 0 {
			m.OccurredAt = time.Date(1900+i*3, 2, 28, 23, 59, 59, i*1001, time.UTC)
		}
		if mixed && i%2 > 0 {
			m.Traceparent, m.CorrelationID, m.SchemaVersion = "00-trace", "correlation", 2
		}
		if mixed && i%5 > 0 {
			m.CausationID, m.EventType, m.Payload = "cause", "Other", []byte{}
		}
		messages[i] = m
	}
	return messages
}

// written appends the messages in a transaction of its own, returns their rows in the order of position, and rolls back.
func (b *bundle) written(messages []*Message, write func(*Txn, context.Context, *pgx.Conn, *pgx.Batch) error) []string {
	b.t.Helper()
	tx, err := b.conn.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(b.t.Context()) }()
	first, second, keys := &pgx.Batch{}, &pgx.Batch{}, []string{}
	for _, m := range messages {
		keys = append(keys, m.AggregateID)
	}
	txn := Begin(first, b.cfg.Buckets, keys)
	must(b.t, tx.SendBatch(b.t.Context(), first).Close())
	for _, m := range messages {
		must(b.t, txn.Append(m))
	}
	must(b.t, write(txn, b.t.Context(), tx.Conn(), second))
	must(b.t, tx.SendBatch(b.t.Context(), second).Close())
	rows, err := tx.Query(b.t.Context(), `SELECT (o.*)::text FROM (SELECT bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream,
epoch, sequence, source, traceparent, correlation_id, causation_id, payload, occurred_at, created_at = $1 AS stamped FROM outbox ORDER BY position) o`, txn.CreatedAt())
	must(b.t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(b.t, err)
	return texts
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
