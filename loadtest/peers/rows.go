package peers

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// batchRows is how many rows one transaction appends: what ingest does under load.
const batchRows = 1000

// filler appends rows of many devices, each with a dense sequence, in arrival order.
type filler struct {
	conn     *pgx.Conn
	buckets  int
	devices  int
	sequence []int64
}

func newFiller(ctx context.Context, url string, devices int) (*filler, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("fill the outbox: %w", err)
	}
	f := &filler{conn: conn, devices: devices, sequence: make([]int64, devices)}
	var partitions int
	if err := conn.QueryRow(ctx, sqlPartitionCount).Scan(&partitions, &f.buckets); err != nil {
		return nil, fmt.Errorf("fill the outbox: %w", err)
	}
	return f, nil
}

// fill appends n rows, in transactions of batchRows.
func (f *filler) fill(ctx context.Context, n int) error {
	if _, err := f.conn.Exec(ctx, sqlEnsurePartition); err != nil {
		return fmt.Errorf("fill the outbox: %w", err)
	}
	for done := 0; done < n; done += batchRows {
		if err := f.batch(ctx, done, min(batchRows, n-done)); err != nil {
			return fmt.Errorf("fill the outbox: %w", err)
		}
	}
	return nil
}

func (f *filler) batch(ctx context.Context, from, n int) error {
	rows, err := f.conn.Query(ctx, sqlReservePositions, n)
	if err != nil {
		return err
	}
	positions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	now := time.Now()
	columns := []string{"position", "bucket", "message_id", "aggregate_type", "aggregate_id", "event_type", "schema_version",
		"stream", "epoch", "sequence", "source", "payload", "occurred_at", "created_at"}
	_, err = f.conn.CopyFrom(ctx, pgx.Identifier{"outbox"}, columns, pgx.CopyFromSlice(n, func(i int) ([]any, error) {
		d := (from + i) % f.devices
		f.sequence[d]++
		device := fmt.Sprintf("peer-%06d", d)
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails, says its documentation
		return []any{positions[i], bucketOf(device, f.buckets), id, "device", device, "DeviceStateChanged", int16(1),
			"state", int64(1), f.sequence[d], "/hubs/hub-1", payload(device, f.sequence[d]), now, now}, nil
	}))
	return err
}

// payload is an event of the usual size, 344 bytes.
func payload(device string, sequence int64) []byte {
	dst := append([]byte(`{"message_id":"0198f2d8-7a51-7c3e-9d55-2f6a1f0d6c11","device_id":"`), device...)
	dst = append(dst, `","hub_id":"hub-1","stream":"state","epoch":1,"sequence":`...)
	dst = strconv.AppendInt(dst, sequence, 10)
	return append(dst, `,"occurred_at":"2026-12-01T04:00:00.000000Z","received_at":"2026-12-01T04:00:00.050000Z","counter":7,"boot":2,"marks":[],"totals":{"missed":0,"late":0,"duplicate":0,"quarantined":0},"state":{"load":417,"door":true,"note":"warm cold open shut idle busy"}}`...)
}

// bucketOf is Kafka's own partitioner, murmur2 made positive, modulo the buckets.
func bucketOf(key string, buckets int) int16 {
	return int16(int(murmur2([]byte(key))&0x7fffffff) % buckets)
}

// murmur2 as Kafka's clients compute it.
func murmur2(data []byte) uint32 {
	const m, seed = 0x5bd1e995, 0x9747b28c
	h := uint32(seed) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	for i := len(data) - 1; i >= 0; i-- {
		h ^= uint32(data[i]) << (8 * i)
		if i == 0 {
			h *= m
		}
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
