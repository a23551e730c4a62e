package outbox

import (
	"fmt"
	"slices"
	"time"

	"github.com/hubstate/hubstate/internal/mutant"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// LockClass is the first key of the advisory locks; the second is the bucket. Whoever holds the lock of a bucket is the
// only one that appends to it (O1).
const LockClass int32 = 1868723576

// Txn is the appending half of one database transaction: Begin, then Append for each message, then Queue or Write. It is
// the only way to append. Not safe for concurrent use; reuse one with its Begin method to keep its buffers.
//
// Why the lock (O1): a position is taken at INSERT and seen at COMMIT. Without it, writer A takes position 7 and stays
// open, writer B takes 8 and commits, a reader passes 8 and never sees 7. With the lock taken before the first nextval,
// the positions of a bucket are committed in the order in which they were taken, and no other bucket waits.
type Txn struct {
	buckets   int
	locked    []int32
	createdAt time.Time
	epoch     int64
	rows      columns
	copy      []byte // of Write
}

// columns are the arrays of one INSERT … SELECT FROM unnest.
type columns struct {
	bucket                                          []int16
	id                                              []pgtype.UUID
	aggregateType, aggregateID, eventType           []string
	version                                         []int16
	stream                                          []string
	epoch, sequence                                 []int64
	source, traceparent, correlationID, causationID []string
	payload                                         [][]byte
	occurredAt                                      []pgtype.Timestamptz

	mixed bool // rows differ in type or version, or carry a trace or correlation
}

// Begin is Txn.Begin on a new Txn.
func Begin(b *pgx.Batch, buckets int, keys []string) *Txn {
	t := &Txn{}
	t.Begin(b, buckets, keys)
	return t
}

// Begin queues two statements: the locks of all buckets of keys, ascending (so that two writers cannot deadlock), and,
// as a statement of its own after them, the instant the rows will carry. The batch must run inside a transaction that
// the caller opened as READ COMMITTED, and whatever the caller reads about these keys must be queued after this call and
// as its own statement: one that locks and reads at once sees the snapshot from before the wait.
func (t *Txn) Begin(b *pgx.Batch, buckets int, keys []string) {
	t.buckets = buckets
	t.createdAt = time.Time{}
	t.rows.reset()
	t.locked = t.locked[:0]
	for _, k := range keys {
		t.locked = append(t.locked, int32(Bucket(k, buckets)))
	}
	slices.Sort(t.locked)
	t.locked = slices.Compact(t.locked)
	if !mutant.On(MutantNoBucketLock) {
		b.Queue(lockBuckets, LockClass, t.locked)
	}
	b.Queue(readCreatedAt).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&t.createdAt, &t.epoch); err != nil {
			return fmt.Errorf("read created_at: %w", err)
		}
		return nil
	})
}

// CreatedAt is the instant of the appended rows: the database's clock, never before the floor of the partitions. It is
// zero until the batch given to Begin has run.
func (t *Txn) CreatedAt() time.Time { return t.createdAt }

// Epoch is the least epoch of a stream that starts now: a rebase raises it while it holds all bucket locks, so that a
// stream which is new to a restored database is not behind what its consumers saw before. Zero until the batch has run.
func (t *Txn) Epoch() int64 { return t.epoch }

// Append adds one message. A message of a bucket that Begin did not lock is an error: its position could be passed.
func (t *Txn) Append(m *Message) error {
	if err := m.validate(); err != nil {
		return err
	}
	bucket := Bucket(m.AggregateID, t.buckets)
	if _, ok := slices.BinarySearch(t.locked, int32(bucket)); !ok {
		return fmt.Errorf("append message of %s: bucket %d is not locked by this transaction", m.AggregateID, bucket)
	}
	t.rows.add(bucket, m)
	return nil
}

// Len is how many messages were appended.
func (t *Txn) Len() int { return len(t.rows.bucket) }

// Bytes is the size of the appended payloads.
func (t *Txn) Bytes() int {
	n := 0
	for _, p := range t.rows.payload {
		n += len(p)
	}
	return n
}

// Queue queues one INSERT of all appended messages, in order; nothing when there are none. Call it once, after the batch
// given to Begin has run.
func (t *Txn) Queue(b *pgx.Batch) error {
	if t.Len() == 0 {
		return nil
	}
	if t.createdAt.IsZero() {
		return errNotBegun
	}
	c := &t.rows
	if !c.mixed {
		b.Queue(insertUniform, c.bucket, c.id, c.aggregateType[0], c.aggregateID, c.eventType[0], c.version[0], c.stream, c.epoch, c.sequence,
			c.source, c.payload, c.occurredAt, t.createdAt)
		return nil
	}
	b.Queue(insertMessages, c.bucket, c.id, c.aggregateType, c.aggregateID, c.eventType, c.version, c.stream, c.epoch, c.sequence,
		c.source, c.traceparent, c.correlationID, c.causationID, c.payload, c.occurredAt, t.createdAt)
	return nil
}

func (c *columns) add(bucket int16, m *Message) {
	if n := len(c.bucket); n > 0 && (c.aggregateType[n-1] != m.AggregateType || c.eventType[n-1] != m.EventType || c.version[n-1] != m.SchemaVersion) {
		c.mixed = true
	}
	c.mixed = c.mixed || m.Traceparent != "" || m.CorrelationID != "" || m.CausationID != ""
	c.bucket = append(c.bucket, bucket)
	c.id = append(c.id, pgtype.UUID{Bytes: m.ID, Valid: true})
	c.aggregateType = append(c.aggregateType, m.AggregateType)
	c.aggregateID = append(c.aggregateID, m.AggregateID)
	c.eventType = append(c.eventType, m.EventType)
	c.version = append(c.version, m.SchemaVersion)
	c.stream = append(c.stream, m.Stream)
	c.epoch = append(c.epoch, m.Epoch)
	c.sequence = append(c.sequence, m.Sequence)
	c.source = append(c.source, m.Source)
	c.traceparent = append(c.traceparent, m.Traceparent)
	c.correlationID = append(c.correlationID, m.CorrelationID)
	c.causationID = append(c.causationID, m.CausationID)
	c.payload = append(c.payload, m.Payload)
	c.occurredAt = append(c.occurredAt, pgtype.Timestamptz{Time: m.OccurredAt, Valid: !m.OccurredAt.IsZero()})
}

func (c *columns) reset() {
	clear(c.payload) // let go of the payloads
	*c = columns{
		bucket: c.bucket[:0], id: c.id[:0], aggregateType: c.aggregateType[:0], aggregateID: c.aggregateID[:0],
		eventType: c.eventType[:0], version: c.version[:0], stream: c.stream[:0], epoch: c.epoch[:0], sequence: c.sequence[:0],
		source: c.source[:0], traceparent: c.traceparent[:0], correlationID: c.correlationID[:0], causationID: c.causationID[:0],
		payload: c.payload[:0], occurredAt: c.occurredAt[:0],
	}
}
