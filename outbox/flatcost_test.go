package outbox

import (
	"os"
	"strconv"
	"testing"
)

// flatStep is the small backlog of BenchmarkRelayFlatCost. Each of its drains publishes flatPart and stops in the middle, so
// that both have read ahead by as much.
const (
	flatStep = 1_000_000
	flatPart = flatStep / 2
)

// flatTimes is how many times as many rows the large backlog has; HUBSTATE_BENCH_BACKLOG changes its number of rows.
func flatTimes() int {
	if n, err := strconv.Atoi(os.Getenv("HUBSTATE_BENCH_BACKLOG")); err == nil {
		return max(2, n/flatStep)
	}
	return 20
}

// multiply repeats the rows of the outbox until it holds times as many, each repetition behind the others, sequences
// going on.
func (b *bundle) multiply(times int) {
	b.t.Helper()
	var first, last, most int64
	if err := b.conn.QueryRow(b.t.Context(), `SELECT min(position), max(position), max(sequence) FROM outbox`).Scan(&first, &last, &most); err != nil {
		b.t.Fatal(err)
	}
	for i := 1; i < times; i++ {
		b.admin(`INSERT INTO outbox (bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, payload, occurred_at, created_at)
SELECT bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence + $3, source, payload, occurred_at, created_at
FROM outbox WHERE position BETWEEN $1 AND $2 ORDER BY position`, first, last, most*int64(i))
	}
	b.admin(`VACUUM ANALYZE outbox`)
}

// leave moves all cursors so that only the last rows of the outbox are unpublished.
func (b *bundle) leave(rows int) {
	b.t.Helper()
	b.admin(`UPDATE outbox_bucket SET cursor = (SELECT max(position) FROM outbox) - $1`, rows)
}

// BenchmarkRelayFlatCost compares what a row costs (processor time of relay and PostgreSQL) with 1,000,000 rows of backlog
// and with 20,000,000: five alternating pairs, each half publishes 500,000. The ratio is small : large, 1 when flat.
func BenchmarkRelayFlatCost(tb *testing.B) {
	b := setup(tb)
	b.copyRows(flatStep, 20_000)
	times := flatTimes()
	b.multiply(times)
	tb.ResetTimer()
	var ratios []float64
	var peak, small, large float64
	price := func() float64 {
		b.drain(flatPart)
		peak = max(peak, b.cost.peakMiB)
		return float64((b.cost.client + b.cost.server).Microseconds()) / flatPart
	}
	for range max(tb.N, 5) {
		b.rewind()
		b.leave(flatStep)
		small = price()
		b.rewind()
		large = price()
		ratios = append(ratios, small/large)
		tb.Logf("%.2f µs a row with %d rows of backlog, %.2f with %d", small, flatStep, large, times*flatStep)
	}
	reportRatio(tb, ratios)
	tb.ReportMetric(peak, "peak-MiB")
}
