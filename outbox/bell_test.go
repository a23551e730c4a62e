package outbox

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// rings counts what a Bell sends.
type rings struct {
	n    atomic.Int32
	fail error
}

func (r *rings) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	r.n.Add(1)
	return pgconn.CommandTag{}, r.fail
}

// A light load must not pay for the bell, and a lone event must not be missed by it.
func TestBell_RingsOnceAfterASilence(t *testing.T) {
	b, db := NewBell(), &rings{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx, db, func(err error) { t.Errorf("ring: %v", err) }) }()
	for range 50 {
		b.Committed()
		time.Sleep(time.Millisecond)
	}
	if n := db.n.Load(); n < 1 || n > 5 {
		t.Errorf("%d rings for 50 commits within %s of each other; want the first only", n, bellQuiet)
	}
	before := db.n.Load()
	time.Sleep(2 * bellQuiet)
	b.Committed()
	eventually(t, "rung again after a silence", 5*time.Second, func() bool { return db.n.Load() > before })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestBell_ReportsWhatItCannotRing(t *testing.T) {
	b, broken := NewBell(), errors.New("no database")
	got := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go b.Run(ctx, &rings{fail: broken}, func(err error) { got <- err })
	b.Committed()
	if err := <-got; !errors.Is(err, broken) {
		t.Errorf("reported %v, want %v", err, broken)
	}
}

// With polls up to half a minute apart a row is published at once when its commit rings, also after the session that
// listens was cut.
func TestRelay_HearsTheBell(t *testing.T) {
	b := setup(t)
	b.cfg.PollMax, b.cfg.PollIdle = 100*time.Millisecond, 30*time.Second
	r := b.start()
	defer r.stop()
	sent := 0
	publishedSoon := func(device string, within time.Duration) {
		t.Helper()
		began := time.Now()
		b.append(b.message(device, nil))
		if _, err := b.conn.Exec(t.Context(), ringBell); err != nil {
			t.Fatal(err)
		}
		sent++
		if got := b.read(within, func(d []delivery) bool { return len(d) >= sent }); len(got) < sent {
			t.Fatalf("%s was not published within %s of its ring", device, within)
		}
		t.Logf("%s after %s", device, time.Since(began).Round(time.Millisecond))
	}
	eventually(t, "ready, and hearing", 30*time.Second, func() bool { return r.Ready() == nil && r.hears.Load() && b.owned() == b.cfg.Buckets })
	quiet := func() { time.Sleep(3 * time.Second) } // the pause between polls has grown beyond a second
	quiet()
	publishedSoon("one", 5*time.Second)

	b.admin(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%prove_bell%' AND pid <> pg_backend_pid()`)
	eventually(t, "deaf", 10*time.Second, func() bool { return !r.hears.Load() })
	eventually(t, "hearing again", 30*time.Second, r.hears.Load)
	quiet()
	publishedSoon("two", 5*time.Second)
}
