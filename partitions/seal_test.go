package partitions

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
)

// borderWriter is a writer that took its bucket lock and read the floor before the border and inserts after it.
type borderWriter struct {
	tx  pgx.Tx
	txn *outbox.Txn
}

func (f *fixture) openOverBorder(device string) *borderWriter {
	f.Helper()
	tx, err := f.connect("hubstate_ingest").Begin(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	w := &borderWriter{tx: tx, txn: &outbox.Txn{}}
	if err := begin(f.Context(), tx, w.txn, testBuckets, []string{device}); err != nil {
		f.Fatal(err)
	}
	return w
}

func (w *borderWriter) commit(f *fixture, device string) {
	f.Helper()
	if err := insert(f.Context(), w.tx, w.txn, message(device, 0)); err != nil {
		f.Fatal(err)
	}
	if err := w.tx.Commit(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// TestSeal_WaitsForTheWriterThatIsOpenOverTheBorder_P2 is the interleaving of seal.go. The row of the dawdling writer
// is above its bucket's cursor when it appears: its partition must stay attached until the relay published it.
func TestSeal_WaitsForTheWriterThatIsOpenOverTheBorder_P2(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := f.config()
	f.turn(cfg)
	first := f.state().Partitions[0].Name
	late := f.openOverBorder("dawdler")

	f.clock.forward(step)
	f.turn(cfg)
	if p := f.find(first); p.Place != Attached || p.Phase != Sealing {
		t.Fatalf("a writer is open: %s is %s %s, want it attached and closing", first, p.Place, p.Phase)
	}
	late.commit(f, "dawdler")
	f.turn(cfg)
	if n := f.query(`SELECT count(*) FROM outbox WHERE tableoid = $1::text::regclass`, first); n != 1 {
		t.Fatal("the row of the open writer is not where the relay looks")
	}
	f.drain()
	f.turn(cfg)
	if p := f.find(first); p.Place != History || *p.Rows != 1 {
		t.Fatalf("published: %s is %s with %v rows, want it in the history with 1", first, p.Place, p.Rows)
	}
}

// TestSeal_NaiveOrderLosesARow shows that the test above can fail: without the barrier (guard, then detach) the same
// writer's row ends in a detached table above its cursor, where no relay reads it.
func TestSeal_NaiveOrderLosesARow(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := f.config()
	cfg.Barrier = func(context.Context, *pgx.Conn) error { return nil }
	// The naive maintainer does not look again either.
	asked := map[string]bool{}
	cfg.Drained = func(ctx context.Context, tx pgx.Tx, partition string) (bool, string, error) {
		if asked[partition] {
			return true, "", nil
		}
		drained, why, err := outboxDrained(ctx, tx, partition)
		asked[partition] = drained
		return drained, why, err
	}
	f.turn(cfg)
	first := f.state().Partitions[0].Name
	late := f.openOverBorder("dawdler")
	f.clock.forward(step)
	if err := insert(t.Context(), late.tx, late.txn, message("dawdler", 0)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.tryTurn(cfg) }() // waited for below
	f.eventually("the detach waits for the writer", func() bool { return f.waitsFor("DETACH") })
	if err := late.tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	f.turn(cfg)
	if n := f.query(`SELECT count(*) FROM outbox`); n != 0 {
		t.Fatalf("the naive order kept %d rows in the outbox: this test no longer shows the loss", n)
	}
	if drained, _, err := f.drained(first); drained || err != nil {
		t.Fatalf("drained %v, %v: want an unpublished row in the detached table", drained, err)
	}
}

func (f *fixture) drained(table string) (drained bool, why string, err error) {
	err = pgx.BeginFunc(f.Context(), f.conn, func(tx pgx.Tx) error {
		drained, why, err = outboxDrained(f.Context(), tx, table)
		return err
	})
	return drained, why, err
}

// waitsFor reports whether a session waits for a lock in a statement that contains text.
func (f *fixture) waitsFor(text string) bool {
	return f.query(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'`, text) > 0
}

func (f *fixture) eventually(what string, is func() bool) {
	f.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatalf("never: %s", what)
		}
	}
}

func TestSeal_OneStalledBucketHoldsOnlyItsOwnPartitions_P2(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := f.config()
	writer := f.connect("hubstate_ingest")
	stalled := outbox.Bucket("stalled", testBuckets)
	others := slices.DeleteFunc(f.devices(40), func(d string) bool { return outbox.Bucket(d, testBuckets) == stalled })

	f.turn(cfg)
	names := []string{f.state().Partitions[0].Name, f.state().Partitions[1].Name, f.state().Partitions[2].Name}
	for i := range names {
		if i != 1 {
			f.write(writer, "stalled")
		}
		f.write(writer, others...)
		f.exec(`UPDATE outbox_bucket b SET cursor = coalesce((SELECT max(position) FROM outbox o WHERE o.bucket = b.bucket), cursor) WHERE bucket <> $1`, stalled)
		// The floor stands in for the clock: writers now create rows in the next partition.
		f.exec(`UPDATE partition_spec SET floor = greatest(floor, $1)`, f.find(names[i]).To)
		f.clock.forward(step)
		f.turn(cfg)
	}
	for i, want := range []Place{Attached, History, Attached} {
		if got := f.find(names[i]).Place; got != want {
			t.Errorf("%s is %s, want %s", names[i], got, want)
		}
	}
	why := Plan(f.judged(), time.Now(), cfg.Spec)
	if !slices.ContainsFunc(why, func(a Action) bool { return a.Kind == Wait && strings.Contains(a.Reason, "before position") }) {
		t.Errorf("no plan says what %s waits for: %v", names[0], why)
	}
}

func (f *fixture) judged() State {
	f.Helper()
	state := f.state()
	if err := judge(f.Context(), f.conn, &state, later(f.clock.at(time.Now()), state.Floor), outboxDrained); err != nil {
		f.Fatal(err)
	}
	return state
}

// TestSeal_DetachedByHandGoesBackWithItsUnpublishedRows_P2: an operator's DETACH does not hide rows from the relay.
func TestSeal_DetachedByHandGoesBackWithItsUnpublishedRows_P2(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := f.config()
	f.turn(cfg)
	f.write(f.connect("hubstate_ingest"), f.devices(10)...)
	first := f.state().Partitions[0].Name
	f.exec(`ALTER TABLE outbox DETACH PARTITION ` + first)
	f.turn(cfg)
	if p := f.find(first); p.Place != Attached || f.query(`SELECT count(*) FROM outbox`) != 10 {
		t.Fatalf("%s is %s, want it attached with its 10 rows", first, p.Place)
	}
	// The same in the middle of sealing, where a maintainer might believe that it detached the table itself.
	f.clock.forward(step)
	f.exec(`ALTER TABLE outbox DETACH PARTITION ` + first)
	f.exec(`UPDATE partition_ledger SET phase = 'sealing' WHERE name = $1`, first)
	f.turn(cfg)
	if p := f.find(first); p.Place != Attached || f.query(`SELECT count(*) FROM outbox`) != 10 {
		t.Fatalf("%s is %s, want it attached with its 10 rows", first, p.Place)
	}
}
