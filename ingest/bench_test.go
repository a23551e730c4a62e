package ingest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	benchBatch   = 500
	benchDevices = 20_000
)

// benchFleet makes the reports of one writer: its devices in turn, counters rising, 250 bytes each.
type benchFleet struct {
	topics  [][]byte
	next    int
	counter int
	lanes   int
	lane    int
}

// newBenchFleet takes the devices whose bucket is lane modulo lanes; with spread all of them.
func newBenchFleet(lane, lanes int, spread bool) *benchFleet {
	f := &benchFleet{lane: lane, lanes: lanes}
	for i := range benchDevices {
		id := fmt.Sprintf("device-%05d", i)
		if mine := int(outbox.Bucket(id, 64))%lanes == lane; !mine && !spread || spread && i%lanes != lane {
			continue
		}
		f.topics = append(f.topics, fmt.Appendf(nil, "hubs/hub-%d/devices/%s/state", i%7, id))
	}
	return f
}

func (f *benchFleet) publish(id uint16, now time.Time) publish {
	if f.next == len(f.topics) {
		f.next, f.counter = 0, f.counter+1
	}
	p := fmt.Appendf(make([]byte, 0, 256), `{"seq":%d,"boot":3,"ts":"%s","state":{"battery":%d,"temperature":21.5,"door":"closed","position":{"x":%d.25,"y":17.5},"mode":"AUTOMATIC","errors":[],"load":{"present":true,"weight":125.5},"tag":"`,
		f.counter+1, now.UTC().Format("2006-01-02T15:04:05.000Z"), f.counter%100, f.next)
	for len(p) < 247 {
		p = append(p, 'x')
	}
	p = append(p, `"}}`...)
	topic := f.topics[f.next]
	f.next++
	return publish{topic: topic, payload: p, size: len(p), id: id, qos: 1}
}

// BenchmarkIngestTransaction is everything of ingest but the broker: decode, decide, write, commit, ack. One iteration
// is one report. Compare with BenchmarkBareCopy.
func BenchmarkIngestTransaction(b *testing.B) {
	for _, c := range []struct {
		name   string
		lanes  int
		spread bool
	}{{"writers=1", 1, false}, {"writers=2", 2, false}, {"writers=4/every-batch-all-buckets", 4, true}} {
		b.Run(c.name, func(b *testing.B) {
			first := newBench(b)
			writers := []*bench{first}
			for i := 1; i < c.lanes; i++ {
				w := *first
				w.gen = nil
				w.claim(fmt.Sprintf("lane-%d", i))
				writers = append(writers, &w)
			}
			fleets := make([]*benchFleet, c.lanes)
			for i := range fleets {
				fleets[i] = newBenchFleet(i, c.lanes, c.spread)
				writers[i].run(fleets[i], len(fleets[i].topics)) // every device is known before the clock starts
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range writers {
				wg.Go(func() { writers[i].run(fleets[i], b.N/c.lanes+1) })
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reports/s")
		})
	}
}

// run sends n reports: one goroutine decodes, the other commits what is decoded, as in a running lane.
func (b *bench) run(f *benchFleet, n int) {
	batches := make(chan []item, 1)
	free := make(chan []item, 3)
	for range 3 {
		free <- make([]item, 0, benchBatch)
	}
	go func() { // ends with the batches that the loop below takes
		defer close(batches)
		for n > 0 {
			items := (<-free)[:0]
			now := time.Now()
			for range min(n, benchBatch) {
				b.id++
				items = append(items, b.decoder.decode(b.gen, f.publish(b.id, now), now))
			}
			n -= len(items)
			batches <- items
		}
	}()
	for items := range batches {
		b.wire.written = b.wire.written[:0]
		b.writer.lane.tail.prepare(items)
		if err := b.writer.store(context.Background(), items); err != nil {
			b.t.Error(err)
		}
		b.gen.confirmed.Store(b.gen.acked) // the broker answers its pings
		b.gen.asked.Store(0)
		free <- items
	}
}

// BenchmarkBareCopy is the ceiling: COPY of the outbox rows alone that the same reports would make, 500 a transaction.
func BenchmarkBareCopy(b *testing.B) {
	for _, writers := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			first := newBench(b)
			at := time.Now()
			if _, err := first.admin.Exec(b.Context(), ensurePartition, at); err != nil {
				b.Fatal(err)
			}
			payload := make([]byte, 520)
			for i := range payload {
				payload[i] = 'x'
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			for range writers {
				wg.Go(func() { copyRows(b, first.admin, b.N/writers+1, at, payload) })
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reports/s")
		})
	}
}

func copyRows(b *testing.B, pool *pgxpool.Pool, n int, at time.Time, payload []byte) {
	columns := []string{"bucket", "message_id", "aggregate_type", "aggregate_id", "event_type", "schema_version", "stream", "epoch",
		"sequence", "source", "payload", "occurred_at", "created_at"}
	for n > 0 {
		rows := min(n, benchBatch)
		n -= rows
		i := 0
		source := pgx.CopyFromFunc(func() ([]any, error) {
			if i == rows {
				return nil, nil
			}
			i++
			id := fmt.Sprintf("device-%05d", (n+i)%benchDevices)
			return []any{outbox.Bucket(id, 64), [16]byte{byte(i)}, "device", id, "DeviceStateChanged", int16(1), "state", int64(1), int64(i),
				"/hubs/hub-1", payload, at, at}, nil
		})
		if _, err := pool.CopyFrom(b.Context(), pgx.Identifier{"outbox"}, columns, source); err != nil {
			b.Error(err)
			return
		}
	}
}
