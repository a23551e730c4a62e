package partitions

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestBlocked_LongReaderDelaysMaintenanceOnly: a cursor is open on the parent and another on an old partition. The
// maintainer waits and says for whom; ingest appends, the relay reads and a writer makes a missing partition, each
// within the lock timeout. When the readers are gone the next turn ends the detach.
func TestBlocked_LongReaderDelaysMaintenanceOnly(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := f.config()
	writer, relay := f.connect("hubstate_ingest"), f.connect("hubstate_relay")
	f.turn(cfg)
	first := f.state().Partitions[0]
	f.write(writer, f.devices(10)...)
	f.drain()
	readers := f.openCursors("outbox", first.Name)

	f.clock.forward(step)
	f.exec(`UPDATE partition_spec SET floor = $1`, first.To) // the writers' clock has passed the border too
	log := &lines{}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	slowest := f.during(func() error { return f.tryTurn(cfg) }, func() error {
		if err := appendRows(t.Context(), writer, testBuckets, "device-aa", "device-bb"); err != nil {
			return err
		}
		_, err := relay.Exec(t.Context(), `SELECT position FROM outbox WHERE bucket = 3 AND position > 0 ORDER BY position LIMIT 10`)
		return err
	})
	if slowest > cfg.LockTimeout+time.Second {
		t.Errorf("a writer or reader waited %s for the maintainer", slowest)
	}
	if p := f.find(first.Name); p.Place != Detaching && p.Place != Attached || p.Phase != Sealing {
		t.Fatalf("%s is %s %s, want it still there and closing", first.Name, p.Place, p.Phase)
	}
	if !strings.Contains(log.String(), "waits for a lock") || !strings.Contains(log.String(), "reader of "+t.Name()) {
		t.Errorf("the log does not say who is waited for:\n%s", log)
	}
	// Another turn, and a partition made by a writer in a range far from the runway, while the detach is pending.
	f.turn(cfg)
	if err := writer.QueryRow(t.Context(), `SELECT ensure_partition('outbox', now() + interval '1000 days')`).Scan(new(string)); err != nil {
		t.Errorf("ensure_partition while a detach is pending: %v", err)
	}
	for _, tx := range readers {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.turn(cfg)
	if p := f.find(first.Name); p.Place != History || *p.Rows != 10 {
		t.Fatalf("%s is %s with %v rows, want it in the history with 10", first.Name, p.Place, p.Rows)
	}
}

// openCursors opens a transaction with a half-read cursor on each table.
func (f *fixture) openCursors(tables ...string) (open []pgx.Tx) {
	f.Helper()
	for _, table := range tables {
		conn, err := dial(f.Context(), f.url, "", "reader of "+f.Name())
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = conn.Close(context.WithoutCancel(f.Context())) })
		tx, err := conn.BeginTx(f.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			f.Fatal(err)
		}
		for _, sql := range []string{`DECLARE c CURSOR FOR SELECT * FROM ` + table, `FETCH 1 FROM c`} {
			if _, err := tx.Exec(f.Context(), sql); err != nil {
				f.Fatal(err)
			}
		}
		open = append(open, tx)
	}
	return open
}

// during runs work over and over until done returns, and returns the longest that one took.
func (f *fixture) during(done, work func() error) (slowest time.Duration) {
	f.Helper()
	ended := make(chan error, 1)
	go func() { ended <- done() }() // waited for below
	for {
		select {
		case err := <-ended:
			if err != nil {
				f.Fatal(err)
			}
			return slowest
		default:
		}
		start := time.Now()
		if err := work(); err != nil {
			f.Fatal(err)
		}
		slowest = max(slowest, time.Since(start))
	}
}

func TestManager_OneLeadsTheOthersStandByAndTakeOver(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := f.config()
	cfg.Tick = time.Second
	first, second := f.manager(cfg), f.manager(cfg)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- first.Run(ctx) }() // waited for below
	f.eventually("the first leads", func() bool { return metric(t, first.metrics.maintainer) == 1 })
	go func() { done <- second.Run(t.Context()) }() // ends with the test's context
	f.eventually("the second shows the same runway", func() bool { return metric(t, second.metrics.runway) > 0 })
	if metric(t, second.metrics.maintainer) != 0 {
		t.Error("two lead")
	}
	if err := f.tryTurn(cfg); err == nil {
		t.Error("a third took a turn beside the leader")
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run returned %v, want nil when cancelled", err)
	}
	f.eventually("the second takes over", func() bool { return metric(t, second.metrics.maintainer) == 1 })
}

func (f *fixture) manager(cfg Config) *Manager {
	f.Helper()
	cfg.Registry = prometheus.NewRegistry()
	m, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	return m
}

// TestManager_SurvivesTheLossOfItsSession: the server ends the session; the maintainer connects anew and leads again.
func TestManager_SurvivesTheLossOfItsSession(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := f.config()
	cfg.Tick = time.Second
	m := f.manager(cfg)
	go func() { _ = m.Run(t.Context()) }() // ends with the test's context
	f.eventually("it leads", func() bool { return metric(t, m.metrics.maintainer) == 1 })
	pid := f.query(`SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1346458197 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	f.exec(`SELECT pg_terminate_backend($1::int)`, pid)
	f.eventually("another session of it leads", func() bool {
		return f.query(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1346458197 AND granted AND pid <> $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, pid) == 1
	})
}
