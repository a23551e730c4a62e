package ingest

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
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
	at      time.Time
	stamp   []byte
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

// publish returns the next report. It costs next to nothing: a prepared payload with the counter and the time put in.
func (f *benchFleet) publish(id uint16, now time.Time) publish {
	if f.next == len(f.topics) {
		f.next, f.counter = 0, f.counter+1
	}
	if !now.Equal(f.at) {
		f.at = now
		f.stamp = now.UTC().AppendFormat(f.stamp[:0], "2006-01-02T15:04:05.000Z")
	}
	p := append(make([]byte, 0, 250), benchPayload...)
	strconv.AppendInt(p[:len(`{"seq":`)], 1_000_000+int64(f.counter), 10) // seven digits for as long as a benchmark runs
	copy(p[len(`{"seq":1000000,"boot":3,"ts":"`):], f.stamp)
	topic := f.topics[f.next]
	f.next++
	return publish{topic: topic, payload: p, size: len(p), id: id, qos: 1}
}

// benchPayload has 250 bytes.
const benchPayload = `{"seq":1000000,"boot":3,"ts":"2026-05-04T12:00:00.000Z","state":{"battery":81,"temperature":21.5,"door":"closed",` +
	`"position":{"x":117.25,"y":17.5},"mode":"AUTOMATIC","errors":[],"load":{"present":true,"weight":125.5},"tag":"0123456789abcdef01234567"}}`

// BenchmarkIngestTransaction is everything of ingest but the broker: decode, decide, write, commit, ack. One iteration
// is one report. Compare with BenchmarkBareCopy.
func BenchmarkIngestTransaction(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as cmd/ingest does
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
			before, own := serverCPU(b, first.admin), processCPU("/proc/self/stat")
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range writers {
				wg.Go(func() { writers[i].run(fleets[i], b.N/c.lanes+1) })
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reports/s")
			b.ReportMetric(float64((serverCPU(b, first.admin)-before).Microseconds())/float64(b.N), "server-µs/op")
			b.ReportMetric(float64((processCPU("/proc/self/stat")-own).Microseconds())/float64(b.N), "client-µs/op")
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

// BenchmarkBareCopy is the ceiling: COPY of the very outbox rows that the same reports made, 500 a transaction.
func BenchmarkBareCopy(b *testing.B) {
	for _, writers := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			first := newBench(b)
			first.run(newBenchFleet(0, 1, false), benchDevices)
			rows := first.outboxRows()
			pool := openAdmin(b, first.url)
			before, own := serverCPU(b, first.admin), processCPU("/proc/self/stat")
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range writers {
				wg.Go(func() { copyRows(b, pool, b.N/writers+1, rows[i*len(rows)/writers:(i+1)*len(rows)/writers]) })
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reports/s")
			b.ReportMetric(float64((serverCPU(b, first.admin)-before).Microseconds())/float64(b.N), "server-µs/op")
			b.ReportMetric(float64((processCPU("/proc/self/stat")-own).Microseconds())/float64(b.N), "client-µs/op")
		})
	}
}

var outboxColumns = [...]string{"bucket", "message_id", "aggregate_type", "aggregate_id", "event_type", "schema_version", "stream", "epoch", "sequence",
	"source", "traceparent", "correlation_id", "causation_id", "payload", "occurred_at", "created_at"}

// outboxRows reads what was appended, ready to be copied back.
func (b *bench) outboxRows() [][]any {
	rows, err := b.admin.Query(b.t.Context(), "SELECT "+strings.Join(outboxColumns[:], ", ")+" FROM outbox ORDER BY position")
	if err != nil {
		b.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

func copyRows(b *testing.B, pool *pgxpool.Pool, n int, rows [][]any) {
	for at := 0; n > 0; at += benchBatch {
		if at+benchBatch > len(rows) {
			at = 0
		}
		size := min(n, benchBatch, len(rows))
		n -= size
		if _, err := pool.CopyFrom(b.Context(), pgx.Identifier{"outbox"}, outboxColumns[:], pgx.CopyFromRows(rows[at:at+size])); err != nil {
			b.Error(err)
			return
		}
	}
}

// BenchmarkLightLoad is one report at a time: there is no linger, so from arrival to acknowledgement should take what the
// database takes for a commit, and the second round trip. Compare the two medians.
func BenchmarkLightLoad(b *testing.B) {
	first := newBench(b)
	first.run(newBenchFleet(0, 1, false), benchBatch)
	if _, err := first.admin.Exec(b.Context(), `CREATE TABLE bare (n bigint)`); err != nil {
		b.Fatal(err)
	}
	fleet := newBenchFleet(0, 1, false)
	fleet.counter = 1
	var ours, bare []time.Duration
	b.ResetTimer()
	for range b.N {
		first.id++
		started := time.Now()
		first.store(first.decoder.decode(first.gen, fleet.publish(first.id, started), started))
		ours = append(ours, time.Since(started))
		started = time.Now()
		if _, err := first.admin.Exec(b.Context(), `INSERT INTO bare VALUES (1)`); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(started))
	}
	slices.Sort(ours)
	slices.Sort(bare)
	b.ReportMetric(float64(ours[len(ours)/2].Microseconds())/1000, "receive-to-ack-p50-ms")
	b.ReportMetric(float64(bare[len(bare)/2].Microseconds())/1000, "bare-commit-p50-ms")
}
