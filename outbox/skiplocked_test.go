package outbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// classic is the relay that most services write: a status column, SELECT … FOR UPDATE SKIP LOCKED, publish, UPDATE. It is
// tuned as its friends would: two workers, 500 rows a transaction, a partial index over what is pending, prepared
// statements, the same producer settings and records as ours. It keeps no order: two workers publish side by side.
type classic struct {
	b      *bundle
	client *kgo.Client
	sent   atomic.Int64
}

const (
	classicWorkers = 2
	classicBatch   = 500
)

// fillClassic copies the rows of the outbox into a fresh table of that relay.
func (b *bundle) fillClassic() {
	b.t.Helper()
	for _, sql := range []string{
		`DROP TABLE IF EXISTS classic`, `CREATE TABLE classic (LIKE outbox, status smallint NOT NULL DEFAULT 0)`,
		`INSERT INTO classic SELECT *, 0 FROM outbox ORDER BY position`, `ALTER TABLE classic ADD PRIMARY KEY (position)`,
		`CREATE INDEX ON classic (position) WHERE status = 0`, `GRANT SELECT, UPDATE ON classic TO hubstate_relay`, `VACUUM ANALYZE classic`,
	} {
		b.admin(sql)
	}
}

// drainClassic publishes all rows of the table and returns how long it took.
func (b *bundle) drainClassic(rows int) time.Duration {
	b.t.Helper()
	client, err := kgo.NewClient(append(b.deps().Kafka, producerOptions(&b.cfg, defaultMaxMessageBytes)...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	if err := client.Ping(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	c := &classic{b: b, client: client}
	conns := make([]*pgx.Conn, classicWorkers)
	for i := range conns {
		conns[i] = b.connect("hubstate_relay")
	}
	start := time.Now()
	var wg sync.WaitGroup
	for _, conn := range conns {
		wg.Go(func() {
			for {
				n, err := c.step(b.t.Context(), conn)
				if err != nil {
					b.t.Error(err)
					return
				}
				if n == 0 {
					return
				}
				c.sent.Add(int64(n))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if n := int(c.sent.Load()); n != rows {
		b.t.Errorf("the classic relay published %d of %d rows", n, rows)
	}
	return took
}

// step publishes one batch in one transaction.
func (c *classic) step(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT bucket, position, message_id, aggregate_id, event_type, schema_version, stream, epoch, sequence,
source, traceparent, correlation_id, causation_id, payload, occurred_at, created_at
FROM classic WHERE status = 0 ORDER BY position LIMIT $1 FOR UPDATE SKIP LOCKED`, pgx.QueryResultFormats{pgx.BinaryFormatCode}, classicBatch)
		if err != nil {
			return err
		}
		defer rows.Close()
		render := newRenderer(&c.b.cfg)
		var windows []*window // a record's memory belongs to its window
		var positions []int64
		for rows.Next() {
			raw := rows.RawValues()
			w := render.alone(raw)
			windows, positions = append(windows, w), append(positions, w.rows[0].position)
		}
		if err := rows.Err(); err != nil || len(windows) == 0 {
			return err
		}
		n = len(windows)
		if err := c.publish(ctx, windows); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE classic SET status = 1 WHERE position = ANY ($1)`, positions)
		return err
	})
	return n, err
}

func (c *classic) publish(ctx context.Context, windows []*window) error {
	var wg sync.WaitGroup
	errs := make([]error, len(windows))
	wg.Add(len(windows))
	for i, w := range windows {
		r := &w.records[0]
		c.client.Produce(ctx, &kgo.Record{Topic: c.b.topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers}, func(_ *kgo.Record, err error) {
			errs[i] = err
			wg.Done()
		})
	}
	if err := c.client.Flush(ctx); err != nil { // our linger would be waited for
		return err
	}
	wg.Wait()
	return errors.Join(errs...)
}

// BenchmarkRelayVsSkipLocked alternates a drain with the classic relay's of the same rows and reports the median ratio.
func BenchmarkRelayVsSkipLocked(tb *testing.B) {
	b := setup(tb)
	const rows = 200_000
	b.copyRows(rows, 20_000)
	tb.ResetTimer()
	var ratios, rates, others []float64
	for range max(tb.N, 5) {
		b.rewind()
		relay := b.drain(rows)
		b.rewind()
		b.fillClassic()
		other := b.drainClassic(rows)
		ratios = append(ratios, other.Seconds()/relay.Seconds())
		rates, others = append(rates, rows/relay.Seconds()), append(others, rows/other.Seconds())
		tb.Logf("relay %.0f rows/s, SKIP LOCKED %.0f rows/s", rows/relay.Seconds(), rows/other.Seconds())
	}
	reportRatio(tb, ratios)
	slices.Sort(rates)
	slices.Sort(others)
	tb.ReportMetric(rates[len(rates)/2], "rows/s")
	tb.ReportMetric(others[len(others)/2], "classic-rows/s")
}

// reportRatio reports the metrics that internal/testenv/ratios reads.
func reportRatio(tb *testing.B, ratios []float64) {
	slices.Sort(ratios)
	tb.ReportMetric(ratios[len(ratios)/2], "ratio")
	tb.ReportMetric(ratios[0], "ratio-min")
	tb.ReportMetric(ratios[len(ratios)-1], "ratio-max")
}
