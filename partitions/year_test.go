package partitions

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// yearEnv is how many partitions TestYear takes through their life; a year of 15-hour partitions is 584.
const yearEnv = "HUBSTATE_TEST_PARTITIONS"

// load is writers and a relay that run for as long as a test wants.
type load struct {
	f       *fixture
	stop    [2]context.CancelFunc // writers, relay
	wg      [2]sync.WaitGroup
	mu      sync.Mutex
	err     error
	commits []time.Duration
	sweeps  []time.Duration
	written int64
	read    int64           // rows that the relay saw, each once
	last    map[int16]int64 // by bucket, the relay's cursors
	broken  []string        // what the relay saw out of order
}

// startLoad runs two writers, each with batches of 20 rows of its own devices, and one relay over all buckets.
func (f *fixture) startLoad() *load {
	writing, stopWriting := context.WithCancel(f.Context())
	relaying, stopRelaying := context.WithCancel(f.Context())
	l := &load{f: f, stop: [2]context.CancelFunc{stopWriting, stopRelaying}, last: map[int16]int64{}}
	for w := range 2 {
		conn := f.connect("hubstate_ingest")
		l.wg[0].Go(func() { l.fail(l.write(writing, conn, w)) })
	}
	conn := f.connect("hubstate_relay")
	l.wg[1].Go(func() { l.fail(l.relay(relaying, conn)) })
	return l
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.err == nil {
		l.err = err
	}
}

func (l *load) write(ctx context.Context, conn *pgx.Conn, writer int) error {
	for batch := 0; ctx.Err() == nil; batch++ {
		devices := make([]string, 20)
		for i := range devices {
			devices[i] = fmt.Sprintf("device-%d-%d", writer, (batch*7+i*3)%500)
		}
		start := time.Now()
		if err := appendRows(context.WithoutCancel(ctx), conn, testBuckets, devices...); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		l.mu.Lock()
		l.commits = append(l.commits, time.Since(start))
		l.written += int64(len(devices))
		l.mu.Unlock()
		_ = sleep(ctx, 2*time.Millisecond)
	}
	return nil
}

// relay sweeps all buckets after their cursors, as outbox.Relay does, and moves the cursors. Told to stop it goes on until
// it finds nothing more.
func (l *load) relay(ctx context.Context, conn *pgx.Conn) error {
	for {
		stopping := ctx.Err() != nil
		n, err := l.sweep(context.WithoutCancel(ctx), conn)
		if err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		if stopping && n == 0 {
			return nil
		}
		_ = sleep(ctx, 5*time.Millisecond)
	}
}

func (l *load) sweep(ctx context.Context, conn *pgx.Conn) (int, error) {
	start := time.Now()
	rows, err := conn.Query(ctx, `SELECT b.bucket, r.position FROM outbox_bucket b,
		LATERAL (SELECT position FROM outbox WHERE bucket = b.bucket AND position > b.cursor ORDER BY position LIMIT 200) r ORDER BY 1, 2`)
	if err != nil {
		return 0, err
	}
	var bucket int16
	var position int64
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&bucket, &position}, func() error {
		n++
		if position <= l.last[bucket] {
			l.broken = append(l.broken, fmt.Sprintf("bucket %d: %d after %d", bucket, position, l.last[bucket]))
		}
		l.last[bucket] = position
		return nil
	})
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	l.read += int64(n)
	l.sweeps = append(l.sweeps, time.Since(start))
	l.mu.Unlock()
	buckets := slices.Sorted(maps.Keys(l.last))
	positions := make([]int64, len(buckets))
	for i, b := range buckets {
		positions[i] = l.last[b]
	}
	_, err = conn.Exec(ctx, `UPDATE outbox_bucket b SET cursor = c.position FROM unnest($1::smallint[], $2::bigint[]) AS c(bucket, position) WHERE b.bucket = c.bucket AND b.cursor < c.position`,
		buckets, positions)
	return n, err
}

// end stops the writers, then the relay when it has seen all that they wrote.
func (l *load) end() {
	l.f.Helper()
	for i := range l.stop {
		l.stop[i]()
		l.wg[i].Wait()
	}
	if l.read != l.written {
		l.f.Errorf("%d rows written, the relay saw %d", l.written, l.read)
	}
	if l.err != nil {
		l.f.Fatal(l.err)
	}
}

func quantile(durations []time.Duration, q float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[int(q*float64(len(sorted)-1))]
}

// TestYear_InMinutes takes many partitions of one minute through their whole life while ingest and relay run: the
// maintainer's clock, and through the floor the writers', runs faster than time. Nothing is lost, few tables are
// attached at any moment, and the relay's poll does not slow down.
func TestYear_InMinutes_P1P2(t *testing.T) {
	partitions, err := strconv.Atoi(or(os.Getenv(yearEnv), "40"))
	if err != nil {
		t.Fatal(err)
	}
	f := setup(t)
	cfg := f.config()
	cfg.Interval, cfg.Runway, cfg.RetainSent = time.Minute, 5*time.Minute, 12*time.Minute
	f.clock.forward(time.Hour)
	m := f.manager(cfg)
	if err := m.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer m.disconnect(t.Context())
	f.passBorder(m)

	quiet := f.startLoad()
	if err := sleep(t.Context(), time.Duration(partitions)*50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	quiet.end()

	busy := f.startLoad()
	attached, alone := 0, 0
	for range partitions {
		f.clock.forward(time.Minute)
		f.passBorder(m)
		state := f.state()
		attached = max(attached, count(state, Attached)+count(state, Detaching))
		alone = max(alone, count(state, Alone))
	}
	busy.end()
	f.clock.forward(time.Minute)
	f.passBorder(m)

	f.checkYear(quiet.written+busy.written, partitions)
	if broken := append(quiet.broken, busy.broken...); len(broken) > 0 {
		t.Errorf("the relay saw %d rows out of order, first %s", len(broken), broken[0])
	}
	if limit := cfg.KeepAttached + attachAhead + 1; attached > limit || alone > int(cfg.Runway/cfg.Interval) {
		t.Errorf("up to %d attached (limit %d) and %d alone", attached, limit, alone)
	}
	half := len(busy.sweeps) / 2
	early, lateSweep := quantile(busy.sweeps[:half], 0.5), quantile(busy.sweeps[half:], 0.5)
	before, during := quantile(quiet.commits, 0.99), quantile(busy.commits, 0.99)
	t.Logf("%d partitions, %d rows: sweep p50 %s early, %s late; commit p50 %s p99 %s quiet, p50 %s p99 %s during maintenance; at most %d attached, %d alone",
		partitions, quiet.written+busy.written, early, lateSweep, quantile(quiet.commits, 0.5), before, quantile(busy.commits, 0.5), during, attached, alone)
	if partitions >= 300 && (lateSweep > 2*early || during > 2*before) {
		t.Errorf("the poll of the relay went from %s to %s, ingest's p99 from %s to %s: want neither doubled", early, lateSweep, before, during)
	}
}

// passBorder lets the writers' clock reach the maintainer's and takes one turn.
func (f *fixture) passBorder(m *Manager) {
	f.Helper()
	slot := m.cfg.slot(f.clock.at(time.Now()))
	f.exec(`UPDATE partition_spec SET floor = greatest(floor, $1)`, slot.From)
	f.eventually("the relay has published what lies before the border", func() bool {
		return f.query(`SELECT count(*) FROM outbox o JOIN outbox_bucket b USING (bucket) WHERE created_at < $1 AND position > cursor`, slot.From) == 0
	})
	if lead, err := m.tick(f.Context()); err != nil || !lead {
		f.Fatalf("turn: lead %v, %v", lead, err)
	}
}

func count(s State, place Place) (n int) {
	for _, p := range s.Partitions {
		if p.Place == place {
			n++
		}
	}
	return n
}

// checkYear compares what was written with what is in the outbox, the history, and the archives of what was dropped.
func (f *fixture) checkYear(written int64, partitions int) {
	f.Helper()
	dropped := f.query(`SELECT count(*) FROM partition_ledger WHERE phase = 'dropped'`)
	if dropped < int64(partitions-16) {
		f.Errorf("%d partitions were dropped, want most of %d", dropped, partitions)
	}
	kept := f.query(`SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM outbox_history)`)
	var archived int64
	rows, err := f.conn.Query(f.Context(), `SELECT name FROM partition_ledger WHERE phase = 'dropped'`)
	if err != nil {
		f.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		man, err := Verify(f.Context(), f.dir, name)
		if err != nil {
			f.Fatal(err)
		}
		archived += man.Rows
	}
	if kept+archived != written {
		f.Errorf("%d rows written; %d in the database and %d in archives of dropped partitions", written, kept, archived)
	}
	if total := f.query(`SELECT last_value FROM outbox_position_seq`); total < written {
		f.Errorf("%d positions for %d rows", total, written)
	}
}
