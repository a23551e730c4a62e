package outbox

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/twmb/franz-go/pkg/kgo"
)

// benchRows is how many rows a drain has; HUBSTATE_BENCH_ROWS changes it.
func benchRows() int {
	if n, err := strconv.Atoi(os.Getenv("HUBSTATE_BENCH_ROWS")); err == nil && n > 0 {
		return n
	}
	return 1_000_000
}

// benchPayload is a report of 344 bytes with the shape of DeviceStateChanged.
func benchPayload(device string, sequence int64) []byte {
	p := fmt.Appendf(nil, `{"message_id":"0190b2b6-7d5a-7cc0-8f7e-%012d","device_id":%q,"hub_id":"h1","stream":"state","epoch":1,"sequence":%d,"occurred_at":"2026-12-01T04:00:00.%06dZ","state":{"temp":%d.%d,"battery":%d,"door":"open","fault":null,"pos":[%d,%d]`,
		sequence, device, sequence, sequence%1e6, sequence%40, sequence%10, sequence%100, sequence*7%1000, sequence*13%1000)
	for len(p) < 342 {
		p = append(p, ' ')
	}
	return append(p, "}}"...)
}

// copyRows fills the outbox as ingest would have: batches of 500 rows in arrival order.
func (b *bundle) copyRows(rows, devices int) {
	b.t.Helper()
	columns := []string{"bucket", "message_id", "aggregate_type", "aggregate_id", "event_type", "schema_version", "stream", "epoch", "sequence", "source", "payload", "occurred_at", "created_at"}
	created := time.Now()
	i := 0
	src := pgx.CopyFromFunc(func() ([]any, error) {
		if i >= rows {
			return nil, nil
		}
		device := "device-" + strconv.Itoa(i*7919%devices)
		seq := int64(i/devices) + 1
		var id [16]byte
		copy(id[:], fmt.Sprintf("%016d", i))
		if i%500 == 0 {
			created = created.Add(time.Microsecond)
		}
		i++
		return []any{Bucket(device, b.cfg.Buckets), pgtype.UUID{Bytes: id, Valid: true}, "device", device, "DeviceStateChanged", int16(1), "state", int64(1), seq, "/hubs/h1", benchPayload(device, seq), created, created}, nil
	})
	if _, err := b.conn.CopyFrom(b.t.Context(), pgx.Identifier{"outbox"}, columns, src); err != nil {
		b.t.Fatal(err)
	}
	b.admin(`VACUUM ANALYZE outbox`)
}

// rewind lets the next relay publish everything again, to a new topic.
func (b *bundle) rewind() {
	b.t.Helper()
	b.admin(`UPDATE outbox_bucket SET cursor = 0, cursor_message_id = NULL, cursor_at = NULL, published = 0, owner = NULL`)
	b.admin(`DELETE FROM outbox_skipped`)
	b.topic = testenv.Topic(b.t, b.brokers, b.cfg.TopicPartitions)
	b.cfg.Topic = b.topic
}

// drainCost is what a drain cost the relay's process and the database's sessions, and the process's largest resident size.
type drainCost struct {
	client, server time.Duration
	peakMiB        float64
}

// drain has a relay in a process of its own publish all rows. It returns the time from the first claim to the last
// committed cursor, and leaves the price in b.cost.
func (b *bundle) drain(rows int) time.Duration {
	b.t.Helper()
	conn := b.connect("hubstate_reader")
	others := cpuOf(b.t, b.sessions()...)
	r := b.startChild("drain")
	start := time.Now()
	for {
		var published int
		var first *time.Time
		if err := conn.QueryRow(b.t.Context(), `SELECT coalesce(sum(published), 0), min(claimed_at) FROM outbox_bucket WHERE owner IS NOT NULL`).Scan(&published, &first); err != nil {
			b.t.Fatal(err)
		}
		if published == 0 && first == nil {
			start = time.Now()
		}
		if published >= rows {
			took := time.Since(start)
			pid := r.cmd.Process.Pid
			b.cost = drainCost{client: cpuOf(b.t, pid), server: cpuOf(b.t, b.sessions()...) - others, peakMiB: peakMiB(pid)}
			r.signal(syscall.SIGTERM)
			<-r.done
			return took
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// records renders all rows in arrival order, before the clock starts.
func (b *bundle) records() []*kgo.Record {
	b.t.Helper()
	conn := b.connect("hubstate_reader")
	rows, err := conn.Query(b.t.Context(), `SELECT r.bucket, r.position, r.message_id, r.aggregate_id, r.event_type, r.schema_version, r.stream, r.epoch, r.sequence,
       r.source, r.traceparent, r.correlation_id, r.causation_id, r.payload, r.occurred_at, r.created_at FROM outbox r ORDER BY position`, pgx.QueryResultFormats{pgx.BinaryFormatCode})
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	render := newRenderer(&b.cfg)
	var records []*kgo.Record
	for rows.Next() {
		raw := rows.RawValues()
		records = append(records, &render.alone(raw).records[0])
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return records
}

// alone renders a row into a window of its own.
func (r *renderer) alone(raw [][]byte) *window {
	w := &window{bucket: int16(binary.BigEndian.Uint16(raw[colBucket]))}
	r.add(w, raw, nil)
	return w
}

// produceBare sends the records as fast as franz-go can, with the relay's settings.
func (b *bundle) produceBare(records []*kgo.Record) time.Duration {
	b.t.Helper()
	client, err := kgo.NewClient(append(b.deps().Kafka, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(2*time.Millisecond),
		kgo.ProducerBatchMaxBytes(1_000_000), kgo.MaxBufferedRecords(1<<18), kgo.ProducerBatchCompression(kgo.SnappyCompression()))...)
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	if err := client.Ping(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	start := time.Now()
	for _, r := range records {
		c := kgo.Record{Topic: b.topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers}
		client.Produce(context.Background(), &c, func(_ *kgo.Record, err error) {
			if err != nil {
				b.t.Error(err)
			}
		})
	}
	if err := client.Flush(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return time.Since(start)
}

// peakMiB is the largest resident size of a process so far.
func peakMiB(pid int) float64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(status), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}

func BenchmarkRelayDrain(tb *testing.B) {
	b := setup(tb)
	rows := benchRows()
	b.copyRows(rows, 20_000)
	tb.ResetTimer()
	var took time.Duration
	var cost drainCost
	for range tb.N {
		b.rewind()
		took += b.drain(rows)
		cost.client += b.cost.client
		cost.server += b.cost.server
		cost.peakMiB = max(cost.peakMiB, b.cost.peakMiB)
	}
	tb.ReportMetric(cost.peakMiB, "peak-MiB")
	tb.ReportMetric(float64(cost.client.Microseconds())/float64(rows*tb.N), "client-µs/row")
	tb.ReportMetric(float64(cost.server.Microseconds())/float64(rows*tb.N), "server-µs/row")
	tb.ReportMetric(float64(rows*tb.N)/took.Seconds(), "rows/s")
}

// BenchmarkRelayVsProducer alternates a drain with a bare producer of the same records and reports the median ratio.
func BenchmarkRelayVsProducer(tb *testing.B) {
	b := setup(tb)
	rows := benchRows()
	b.copyRows(rows, 20_000)
	records := b.records()
	tb.ResetTimer()
	var ratios, rates, bares []float64
	for range max(tb.N, 5) {
		b.rewind()
		relay := b.drain(rows)
		b.rewind()
		bare := b.produceBare(records)
		ratios = append(ratios, bare.Seconds()/relay.Seconds())
		rates, bares = append(rates, float64(rows)/relay.Seconds()), append(bares, float64(rows)/bare.Seconds())
		tb.Logf("relay %.0f rows/s, bare producer %.0f rows/s", float64(rows)/relay.Seconds(), float64(rows)/bare.Seconds())
	}
	reportRatio(tb, ratios)
	slices.Sort(rates)
	slices.Sort(bares)
	tb.ReportMetric(rates[len(rates)/2], "rows/s")
	tb.ReportMetric(bares[len(bares)/2], "bare-rows/s")
}
