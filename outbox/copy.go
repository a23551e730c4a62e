package outbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// copyFrom is how many messages make a COPY worth its own round trip: it writes a row for half of what INSERT costs the
// server, because the rows of a page go into it, and into the log, together.
const copyFrom = 64

// Write writes all appended messages, in order: few by queueing an INSERT on b, many at once with a COPY on conn, which
// must be the connection on which b will run, inside the same transaction. Call it once, after the batch given to Begin
// has run, and do not commit before b has run.
func (t *Txn) Write(ctx context.Context, conn *pgx.Conn, b *pgx.Batch) error {
	if t.Len() < copyFrom {
		return t.Queue(b)
	}
	if t.createdAt.IsZero() {
		return errNotBegun
	}
	t.copy = t.rows.appendCopy(t.copy[:0], t.createdAt)
	if _, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(t.copy), copyMessages); err != nil {
		return fmt.Errorf("copy messages: %w", err)
	}
	return nil
}

var errNotBegun = errors.New("append messages: the batch given to Begin has not run")

// appendCopy renders all rows in the binary format of COPY (PostgreSQL manual, COPY, "Binary Format"), columns in the
// order of copyMessages.
func (c *columns) appendCopy(b []byte, createdAt time.Time) []byte {
	b = append(b, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	for i := range c.bucket {
		b = binary.BigEndian.AppendUint16(b, 16)
		b = appendInt2(b, c.bucket[i])
		b = appendBytes(b, c.id[i].Bytes[:])
		b = appendBytes(b, c.aggregateType[i])
		b = appendBytes(b, c.aggregateID[i])
		b = appendBytes(b, c.eventType[i])
		b = appendInt2(b, c.version[i])
		b = appendBytes(b, c.stream[i])
		b = appendInt8(b, c.epoch[i])
		b = appendInt8(b, c.sequence[i])
		b = appendBytes(b, c.source[i])
		b = appendOptional(b, c.traceparent[i])
		b = appendOptional(b, c.correlationID[i])
		b = appendOptional(b, c.causationID[i])
		b = appendBytes(b, c.payload[i])
		b = appendInstant(b, c.occurredAt[i].Time)
		b = appendInstant(b, createdAt)
	}
	return append(b, 0xff, 0xff)
}

func appendInt2(b []byte, n int16) []byte {
	return binary.BigEndian.AppendUint16(append(b, 0, 0, 0, 2), uint16(n))
}

func appendInt8(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(n))
}

func appendBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

// appendOptional renders an empty text as NULL.
func appendOptional(b []byte, v string) []byte {
	if v == "" {
		return appendNull(b)
	}
	return appendBytes(b, v)
}

func appendNull(b []byte) []byte { return append(b, 0xff, 0xff, 0xff, 0xff) }

// appendInstant renders microseconds since 2000, the zero time as NULL.
func appendInstant(b []byte, at time.Time) []byte {
	if at.IsZero() {
		return appendNull(b)
	}
	return appendInt8(b, at.UnixMicro()-postgresEpoch)
}
