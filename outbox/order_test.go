package outbox

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// slowWriter opens a transaction of its own, appends, and holds it open until released.
type slowWriter struct {
	tx   pgx.Tx
	conn *pgx.Conn
}

// open takes the position of m and keeps the transaction open. withLock = false is the mutant: the lock is left out.
func (b *bundle) open(m *Message, withLock bool) *slowWriter {
	b.t.Helper()
	conn := b.connect("hubstate_ingest")
	tx, err := conn.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	first, second := &pgx.Batch{}, &pgx.Batch{}
	txn := &Txn{}
	txn.Begin(first, b.cfg.Buckets, []string{m.AggregateID})
	if !withLock {
		first.QueuedQueries = first.QueuedQueries[1:]
	}
	if err := tx.SendBatch(b.t.Context(), first).Close(); err != nil {
		b.t.Fatal(err)
	}
	if err := txn.Append(m); err != nil {
		b.t.Fatal(err)
	}
	if err := txn.Queue(second); err != nil {
		b.t.Fatal(err)
	}
	if err := tx.SendBatch(b.t.Context(), second).Close(); err != nil {
		b.t.Fatal(err)
	}
	return &slowWriter{tx: tx, conn: conn}
}

// sameBucket returns another key that shares key's bucket.
func sameBucket(key string, buckets int) string {
	for i := 0; ; i++ {
		if other := fmt.Sprintf("%s-%d", key, i); Bucket(other, buckets) == Bucket(key, buckets) {
			return other
		}
	}
}

// passes runs the scenario of promise O1 and reports whether a reader passed the slow writer's row, and whether another
// bucket was held up.
func passes(t *testing.T, withLock bool) (passed, heldUp bool) {
	b := setup(t)
	slow, fast := "slow", sameBucket("slow", b.cfg.Buckets)
	elsewhere := "elsewhere"
	if Bucket(elsewhere, b.cfg.Buckets) == Bucket(slow, b.cfg.Buckets) {
		t.Fatal("choose another key")
	}
	b.start()
	w := b.open(b.message(slow, nil), withLock)

	// Writer B of the same bucket commits, or waits for A's lock; a third, of another bucket, must not wait at all.
	conn := b.connect("hubstate_ingest")
	committed := make(chan error, 1)
	later := b.message(fast, nil)
	go func() { committed <- appendAll(context.Background(), conn, b.cfg.Buckets, []*Message{later}) }()
	b.append(b.message(elsewhere, nil))
	all := b.read(10*time.Second, unique(1))
	heldUp = all[0].device != elsewhere && all[0].device != fast
	if !withLock {
		if err := <-committed; err != nil {
			t.Fatal(err)
		}
		b.read(10*time.Second, unique(2)) // B's row is out while A is still open
	}
	time.Sleep(1500 * time.Millisecond) // A stays open for seconds: time is the scenario here, not a way to wait
	if err := w.tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if withLock {
		if err := <-committed; err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return !b.sawAll(ctx, 3), heldUp
}

// sawAll reports whether n rows reach the topic before ctx ends.
func (b *bundle) sawAll(ctx context.Context, n int) bool {
	for ctx.Err() == nil {
		var published int
		if err := b.conn.QueryRow(b.t.Context(), `SELECT sum(published) FROM outbox_bucket`).Scan(&published); err != nil {
			b.t.Fatal(err)
		}
		if published >= n {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

func TestAppend_AReaderNeverPassesAnOpenWriter_O1(t *testing.T) {
	t.Parallel()
	passed, heldUp := passes(t, true)
	if passed {
		t.Error("the slow writer's row was passed and never published")
	}
	if heldUp {
		t.Error("a row of another bucket waited for the slow writer")
	}
}

// The same scenario without the lock loses the row: the test above can fail.
func TestAppend_WithoutTheLockARowIsPassed_O1(t *testing.T) {
	t.Parallel()
	if passed, _ := passes(t, false); !passed {
		t.Error("the row was not lost without the lock: the scenario proves nothing")
	}
}

// lockThenRead and lockAndRead are the two ways to read the stored row of a key whose bucket lock is taken. The second
// sees the snapshot from before the wait: a stale row, and so a sequence number twice.
var (
	lockThenRead = []string{`SELECT pg_advisory_xact_lock(1868723576, 7)`, `SELECT v FROM counter_of_test`}
	lockAndRead  = []string{`SELECT v FROM counter_of_test, (SELECT pg_advisory_xact_lock(1868723576, 7)) l`}
)

// readAfterWait lets a second writer wait for the lock of the first, and returns what it reads once it has it.
func readAfterWait(t *testing.T, statements []string) int {
	b := setup(t, "127.0.0.1:1")
	owner := b.connect("hubstate_maintainer")
	for _, sql := range []string{`CREATE TABLE counter_of_test (v int)`, `INSERT INTO counter_of_test VALUES (1)`, `GRANT ALL ON counter_of_test TO hubstate_ingest`} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	first, err := b.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1868723576, 7)`); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Exec(t.Context(), `UPDATE counter_of_test SET v = 2`); err != nil {
		t.Fatal(err)
	}
	second := b.connect("hubstate_ingest")
	got := make(chan int, 1)
	go func() { got <- b.readLast(second, statements) }()
	eventually(t, "the second writer waits for the lock", 5*time.Second, func() bool {
		var waiting int
		_ = owner.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database()`).Scan(&waiting)
		return waiting > 0
	})
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return <-got
}

func (b *bundle) readLast(conn *pgx.Conn, statements []string) (v int) {
	err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
		for _, sql := range statements {
			if strings.Contains(sql, "SELECT v") {
				return tx.QueryRow(context.Background(), sql).Scan(&v)
			}
			if _, err := tx.Exec(context.Background(), sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.t.Error(err)
	}
	return v
}

func TestAppend_TheReadAfterTheLockIsItsOwnStatement_O1(t *testing.T) {
	t.Parallel()
	if got := readAfterWait(t, lockThenRead); got != 2 {
		t.Errorf("read %d after the lock, want the committed 2", got)
	}
	if got := readAfterWait(t, lockAndRead); got != 1 {
		t.Errorf("one statement read %d: it should have seen the stale 1, else this test proves nothing", got)
	}
}
