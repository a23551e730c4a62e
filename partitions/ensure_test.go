package partitions

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestEnsurePartition_CutsAsThePlanDoes compares the database function with slot arithmetic in Go over random
// neighbours, intervals and floors.
func TestEnsurePartition_CutsAsThePlanDoes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	base := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for round := range 15 {
		tx, err := f.conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		spec := Spec{Interval: time.Duration(1+random.IntN(120)) * time.Minute}.withDefaults()
		floor := base.Add(time.Duration(random.IntN(300)) * time.Minute)
		if _, err := tx.Exec(t.Context(), `UPDATE partition_spec SET interval_seconds = $1, floor = $2`, spec.Interval/time.Second, floor); err != nil {
			t.Fatal(err)
		}
		var have []span
		for range 8 {
			at := base.Add(time.Duration(random.IntN(600*60)) * time.Second)
			name, got := ensure(t, tx, at)
			want := wantSpan(spec, later(at, floor), floor, have)
			if !got.equal(want) || name != spec.nameOf(want) {
				t.Fatalf("seed %d, round %d: interval %s, floor %s, have %v: ensure_partition(%s) made %s %s, the plan %s", seed, round, spec.Interval, stamp(floor), have, at, name, got, want)
			}
			have = append(have, got)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func wantSpan(spec Spec, at, floor time.Time, have []span) span {
	for _, r := range have {
		if r.covers(at) {
			return r
		}
	}
	return spec.free(at, floor, have)
}

func ensure(t *testing.T, tx pgx.Tx, at time.Time) (name string, r span) {
	t.Helper()
	if err := tx.QueryRow(t.Context(), `SELECT ensure_partition('outbox', $1)`, at).Scan(&name); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(t.Context(), `SELECT lower_at, upper_at FROM partition_ledger WHERE name = $1`, name).Scan(&r.From, &r.To); err != nil {
		t.Fatal(err)
	}
	return name, r
}

// TestEnsurePartition_ManyWritersMakeItOnce_P1: all writers miss the partition at the same moment, all get on, and a
// maintainer that makes and attaches runway tables meanwhile is not disturbed.
func TestEnsurePartition_ManyWritersMakeItOnce_P1(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var wg sync.WaitGroup
	errs := make(chan error, 20)
	for i := range 12 {
		conn := f.connect("hubstate_ingest")
		wg.Go(func() {
			errs <- appendRows(t.Context(), conn, testBuckets, fmt.Sprintf("device-%d", i))
		})
	}
	cfg := f.config()
	wg.Go(func() { errs <- f.tryTurn(cfg) })
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if n := f.query(`SELECT count(*) FROM outbox`); n != 12 {
		t.Errorf("%d rows, want 12", n)
	}
}

func TestEnsurePartition_BelowTheFloorGivesTheFloorsPartition(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.sealed(5)
	conn := f.connect("hubstate_ingest")
	var name string
	if err := conn.QueryRow(t.Context(), `SELECT ensure_partition('outbox', $1)`, f.find(first).From).Scan(&name); err != nil {
		t.Fatal(err)
	}
	if name == first || f.find(first).Place != History {
		t.Fatalf("asked for a sealed range it gave %s, and %s is %s", name, first, f.find(first).Place)
	}
	if got := f.find(name); got.Place != Attached || got.From.Before(f.state().Floor) {
		t.Fatalf("%s is %s from %s, want it attached above the floor", name, got.Place, stamp(got.From))
	}
}

// TestClock_StepsLeaveNoRowUnroutableOrInvisible moves the server's clock, as the writers see it, by a day both ways.
func TestClock_StepsLeaveNoRowUnroutableOrInvisible_P1(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`CREATE TABLE test_clock (step interval)`)
	f.exec(`INSERT INTO test_clock VALUES ('0')`)
	cfg := f.config()
	cfg.Interval, cfg.Runway = time.Hour, 6*time.Hour
	total := int64(0)
	for _, hours := range []int{0, 24, -24, 1, -30, 25, 26, 0} {
		f.exec(`UPDATE test_clock SET step = make_interval(hours => $1)`, hours)
		f.clock.mu.Lock()
		f.clock.offset = time.Duration(hours) * time.Hour
		f.clock.mu.Unlock()
		for turn := range 3 {
			f.writeAtTestClock()
			total++
			if visible := f.query(`SELECT count(*) FROM outbox`) + f.query(`SELECT count(*) FROM outbox_history`); visible != total {
				t.Fatalf("clock at %+d h, turn %d: %d of %d rows visible", hours, turn, visible, total)
			}
			if turn == 1 {
				f.drain()
			}
			f.turn(cfg)
		}
	}
	if n := f.query(`SELECT count(*) FROM (SELECT FROM outbox_history EXCEPT ALL SELECT FROM outbox_history WHERE created_at < (SELECT floor FROM partition_spec)) x`); n != 0 {
		t.Errorf("%d sealed rows lie above the floor", n)
	}
}

// writeAtTestClock inserts one row as outbox.Txn does, with the test's clock in the place of clock_timestamp().
func (f *fixture) writeAtTestClock() {
	f.Helper()
	var at time.Time
	if err := f.conn.QueryRow(f.Context(), `SELECT greatest(clock_timestamp() + step, floor) FROM partition_spec, test_clock`).Scan(&at); err != nil {
		f.Fatal(err)
	}
	insert := `INSERT INTO outbox (bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, payload, created_at)
		VALUES (1, gen_random_uuid(), 'device', 'd', 'e', 1, 's', 1, 1, '/', '', $1)`
	for range 2 {
		_, err := f.conn.Exec(f.Context(), insert, at)
		if err == nil {
			return
		}
		if !missingPartition(err) {
			f.Fatal(err)
		}
		f.exec(`SELECT ensure_partition('outbox', $1)`, at)
	}
	f.Fatalf("a row of %s is unroutable", at)
}

func TestQueries_AllPrepareOnTheMigratedSchema(t *testing.T) {
	t.Parallel()
	f := setup(t)
	conn := f.connect("hubstate_maintainer")
	for i, sql := range []string{
		setSetting, tryLead, upsertSpec, selectSpec, recordTick, raiseFloor, takeLock, selectChildren, selectLedger, createTable, attachTable, detachState,
		recordAdopted, deleteAhead, lockAhead, recordSealing, recordSealed, recordArchived, recordDamaged, recordDropped, recordGone, recordFailure, recordNextAttempt,
		archiveSHA, revisionOf, sealedHook, unlead, tableSize, expireRows, readColumns, selectBlockers, fmt.Sprintf(countRows, "outbox"), fmt.Sprintf(hasRows, "outbox"), fmt.Sprintf(readTable, "position", "outbox"),
	} {
		if _, err := conn.Prepare(t.Context(), fmt.Sprint("s", i), sql); err != nil {
			t.Errorf("%s: %v", strings.SplitN(sql, "\n", 2)[0], err)
		}
	}
}
