package ingest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/schema"
	"github.com/hubstate/hubstate/internal/testenv"
)

// PostgreSQL restarted, killed and hung while a fleet publishes: no ack without a commit, no loss, nothing twice, no
// growth; ingest goes on by itself.
func TestFlow_DatabaseRestartedKilledAndHungLosesNothing_N1_N3(t *testing.T) {
	t.Parallel()
	broker := testenv.MQTT(t)
	pg, url := ownPostgres(t)
	r := startRig(t, url, broker)
	r.waitReady()
	l := newLedger(t, broker, name(t), 20)
	l.publish(1, 10)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, trouble := range []struct {
		name string
		do   func()
	}{
		{"restarted", func() { must(pg.Restart(t.Context())) }},
		{"killed", func() { must(pg.Kill()); l.publish(1, 10); must(pg.Restart(t.Context())) }},
		{"hung", func() { must(pg.Pause()); l.publish(1, 10); time.Sleep(2 * time.Second); must(pg.Resume()) }},
	} {
		before := heap()
		trouble.do()
		l.publish(1, 10)
		eventually(t, 30*time.Second, func() error { return everythingIn(r, l) })
		if grown := heap() - before; grown > 32<<20 {
			t.Errorf("%s: heap grew by %d KB", trouble.name, grown>>10)
		}
	}
	r.count(0, `SELECT count(*) FROM (SELECT sequence, row_number() OVER (PARTITION BY aggregate_id, stream ORDER BY position) AS n FROM outbox) x WHERE sequence <> n`)
	r.count(0, `SELECT count(*) FROM stream_gap`)
	r.count(l.total(), `SELECT count(*) FROM outbox`)
}

func everythingIn(r *rig, l *ledger) error {
	var n int64
	err := r.admin.QueryRow(context.Background(), `SELECT coalesce(sum(counter), 0)::bigint FROM device_state`).Scan(&n)
	if err == nil && n != l.total() {
		err = fmt.Errorf("counters sum to %d, want %d", n, l.total())
	}
	return err
}

// ownPostgres starts a server of this test's own, migrated, which the test may stop.
func ownPostgres(t *testing.T) (*embedded.Postgres, string) {
	t.Helper()
	testenv.Postgres(t) // skips, or fails in CI, where there is no PostgreSQL
	dir, err := os.MkdirTemp("", "hubstate-ingest-pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return ownPostgresIn(t, dir)
}

func ownPostgresIn(t *testing.T, dir string) (*embedded.Postgres, string) {
	t.Helper()
	if err := os.Chmod(dir, 0o711); err != nil { // the server may run as another user
		t.Fatal(err)
	}
	pg, err := embedded.StartPostgres(t.Context(), embedded.PostgresOptions{DataDir: dir + "/data"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pg.Stop(context.WithoutCancel(t.Context())) })
	if err := schema.Migrate(t.Context(), pg.URL(), testenv.Settings()); err != nil {
		t.Fatal(err)
	}
	return pg, pg.URL()
}

// What the server answers under pressure: full disk, deadlock, serialization failure, shutdown, no memory. Each is tried
// again until it works; the batch is stored once.
func TestFlow_TransientErrorsAreTriedAgainUntilTheyPass_N1(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"53100", "53200", "40P01", "40001", "57014", "55P03", "58030", "XX000"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec(`CREATE SEQUENCE tries; GRANT ALL ON SEQUENCE tries TO PUBLIC`)
			b.exec(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF nextval('tries') <= 3 THEN RAISE EXCEPTION 'injected' USING ERRCODE = '` + code + `'; END IF; RETURN NEW; END $$`)
			b.exec(`CREATE TRIGGER fail BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION fail()`)
			b.store(b.message("hubs/h/devices/d/state", `{"seq":1,"state":{}}`), b.message("hubs/h/devices/e/state", `{"seq":1,"state":{}}`))
			if n := query[int](b, `SELECT count(*) FROM outbox`); n != 2 {
				t.Errorf("%d events, want 2", n)
			}
			if n := query[int](b, `SELECT count(*) FROM ingest_reject`); n != 0 {
				t.Errorf("%d reports were quarantined for the server's trouble", n)
			}
			if len(b.acked()) != 2 {
				t.Errorf("%d acks", len(b.acked()))
			}
		})
	}
}

func (b *bench) exec(sql string) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// No partition for the present: the writer makes one, once, and the batch goes through.
func TestFlow_MissingPartitionIsMadeForTheBatch_P1(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if n := query[int](b, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass`); n != 0 {
		t.Fatalf("%d partitions at the start: this proves nothing", n)
	}
	for i := range 3 {
		b.store(b.message("hubs/h/devices/d/state", fmt.Sprintf(`{"seq":%d,"state":{}}`, i)))
	}
	if n := query[int](b, `SELECT count(*) FROM outbox`); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
	if n := query[int](b, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass`); n == 0 || n > 2 {
		t.Errorf("%d partitions", n)
	}
}

// At the server's connection limit nothing is acknowledged; when there is room again everything is stored.
func TestFlow_ConnectionLimitHoldsBackAndResumes_N1(t *testing.T) {
	t.Parallel()
	broker, db := testenv.MQTT(t), testenv.Postgres(t)
	admin := openAdmin(t, db)
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	user := "limited_" + strings.TrimPrefix(u.Path, "/")
	for _, sql := range []string{fmt.Sprintf(`CREATE ROLE %q LOGIN PASSWORD 'x' IN ROLE hubstate_ingest`, user)} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = admin.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf(`DROP ROLE %q`, user)) })
	u.User = url.UserPassword(user, "x")
	r := startRig(t, u.String(), broker)
	r.admin = admin
	r.waitReady()
	l := newLedger(t, broker, name(t), 5)
	l.publish(1, 10)
	r.count(50, `SELECT applied FROM ingest_lane`)
	for _, sql := range []string{
		fmt.Sprintf(`ALTER ROLE %q CONNECTION LIMIT 0`, user),
		fmt.Sprintf(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '%s'`, user),
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	l.publish(1, 10)
	stays(t, func() error {
		if n := scalar(t, admin, `SELECT applied FROM ingest_lane`); n != 50 {
			return fmt.Errorf("%d applied over the limit", n)
		}
		return nil
	})
	if _, err := admin.Exec(t.Context(), fmt.Sprintf(`ALTER ROLE %q CONNECTION LIMIT -1`, user)); err != nil {
		t.Fatal(err)
	}
	r.count(100, `SELECT applied FROM ingest_lane`)
	r.count(0, `SELECT duplicate + late + quarantined FROM ingest_lane`)
}
