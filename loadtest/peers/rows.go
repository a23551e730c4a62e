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

// row is one event.
type row struct {
	device   string
	sequence int64
}

// filler appends rows of many devices, each with a dense sequence, in arrival order, to one table.
type filler struct {
	conn     *pgx.Conn
	devices  int
	sequence []int64
	next     int   // device
	total    int64 // rows so far
	insert   func(ctx context.Context, rows []row) error
}

// newFiller prepares one that appends to the outbox.
func newFiller(ctx context.Context, url string, devices int) (*filler, error) {
	f, err := connectFiller(ctx, url, devices)
	if err != nil {
		return nil, err
	}
	var partitions, buckets int
	if err := f.conn.QueryRow(ctx, sqlPartitionCount).Scan(&partitions, &buckets); err != nil {
		return nil, fmt.Errorf("fill the outbox: %w", err)
	}
	f.insert = func(ctx context.Context, rows []row) error { return f.copyRows(ctx, rows, buckets) }
	return f, nil
}

// newWatermillFiller prepares one that appends to watermill-sql's table.
func newWatermillFiller(ctx context.Context, url string, devices int) (*filler, error) {
	f, err := connectFiller(ctx, url, devices)
	if err != nil {
		return nil, err
	}
	f.insert = f.insertWatermill
	return f, nil
}

func connectFiller(ctx context.Context, url string, devices int) (*filler, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("fill the outbox: %w", err)
	}
	return &filler{conn: conn, devices: devices, sequence: make([]int64, devices)}, nil
}

// fill appends n rows, in transactions of batchRows.
func (f *filler) fill(ctx context.Context, n int) error {
	for done := 0; done < n; done += batchRows {
		if err := f.add(ctx, min(batchRows, n-done)); err != nil {
			return err
		}
	}
	return nil
}

// add appends n rows in one transaction.
func (f *filler) add(ctx context.Context, n int) error {
	rows := make([]row, n)
	for i := range rows {
		f.sequence[f.next]++
		rows[i] = row{deviceName(f.next), f.sequence[f.next]}
		f.next = (f.next + 1) % f.devices
	}
	if err := f.insert(ctx, rows); err != nil {
		return fmt.Errorf("fill the outbox: %w", err)
	}
	f.total += int64(n)
	return nil
}

// upcoming is the row that add appends next.
func (f *filler) upcoming() row { return row{deviceName(f.next), f.sequence[f.next] + 1} }

func deviceName(n int) string { return fmt.Sprintf("peer-%06d", n) }

func (f *filler) copyRows(ctx context.Context, all []row, buckets int) error {
	reserved, err := f.conn.Query(ctx, sqlReservePositions, len(all))
	if err != nil {
		return err
	}
	positions, err := pgx.CollectRows(reserved, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	now := time.Now()
	columns := []string{"position", "bucket", "message_id", "aggregate_type", "aggregate_id", "event_type", "schema_version",
		"stream", "epoch", "sequence", "source", "payload", "occurred_at", "created_at"}
	_, err = f.conn.CopyFrom(ctx, pgx.Identifier{"outbox"}, columns, pgx.CopyFromSlice(len(all), func(i int) ([]any, error) {
		r := all[i]
		return []any{positions[i], bucketOf(r.device, buckets), newID(), "device", r.device, "DeviceStateChanged", int16(1),
			"state", int64(1), r.sequence, "/hubs/hub-1", payload(r.device, r.sequence), now, now}, nil
	}))
	return err
}

// insertWatermill gives each message the headers that the others' records have.
func (f *filler) insertWatermill(ctx context.Context, all []row) error {
	ids, payloads, metadata := make([]string, len(all)), make([][]byte, len(all)), make([]string, len(all))
	for i, r := range all {
		id := newID()
		ids[i], payloads[i] = fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), payload(r.device, r.sequence)
		metadata[i] = fmt.Sprintf(`{"key":%q,"ce_type":"DeviceStateChanged","ce_stream":"state","ce_epoch":"1","ce_sequence":"%d","ce_source":"/hubs/hub-1","ce_schemaversion":"1"}`,
			r.device, r.sequence)
	}
	_, err := f.conn.Exec(ctx, sqlWatermillRows, ids, payloads, metadata)
	return err
}

func newID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails, says its documentation
	return id
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
