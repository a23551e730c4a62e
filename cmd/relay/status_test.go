package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
)

// exec runs a statement that arranges a test's world.
func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// bucketOf is where a device lies.
func bucketOf(device string) int16 { return outbox.Bucket(device, testenv.Settings().Buckets) }

// troubledWorld has a bucket of each kind: working, failing, halted, abandoned, and dead and held rows.
func troubledWorld(t *testing.T) (url string, conn *pgx.Conn) {
	t.Helper()
	url = testenv.Postgres(t)
	conn = connect(t, url)
	exec(t, conn, "INSERT INTO relay_instance (instance, lease_until) VALUES ('r1/aaaa', now() + interval '1 hour'), ('r2/bbbb', now() - interval '1 minute')")
	exec(t, conn, "UPDATE outbox_bucket SET owner = 'r1/aaaa', term = 3")
	// d0 … d4 lie in five different buckets.
	for sequence := int64(1); sequence <= 3; sequence++ {
		for device := range 5 {
			appendEvents(t, conn, event{device: fmt.Sprint("d", device), sequence: sequence})
		}
	}
	sent := func(device string, sequence int64) {
		exec(t, conn, `UPDATE outbox_bucket SET published = $2, cursor = (SELECT position FROM outbox WHERE aggregate_id = $1 AND sequence = $2), cursor_at = now()
			WHERE bucket = $3`, device, sequence, bucketOf(device))
	}
	sent("d0", 3)
	sent("d1", 1)
	exec(t, conn, `UPDATE outbox_bucket SET outage_attempts = 7, last_error_code = 'NOT_ENOUGH_REPLICAS', last_error = 'too few', next_attempt_at = now() + interval '1 hour' WHERE bucket = $1`, bucketOf("d1"))
	exec(t, conn, `UPDATE outbox_bucket SET halted = 'the topic holds position 99, no such row is stored', owner = NULL WHERE bucket = $1`, bucketOf("d2"))
	exec(t, conn, `UPDATE outbox_bucket SET owner = 'r2/bbbb' WHERE bucket = $1`, bucketOf("d3"))
	sent("d4", 3)
	kill(t, conn, "d4", 1, "dead", "MESSAGE_TOO_LARGE")
	kill(t, conn, "d4", 2, "held", "HELD")
	exec(t, conn, `INSERT INTO outbox_skipped (bucket, aggregate_id, stream, epoch, from_sequence, to_sequence, reason, up_to) VALUES ($1, 'd0', 'state', 1, 1, 2, 'superseded', 0)`, bucketOf("d0"))
	return url, conn
}

// kill moves an event into outbox_dead as the relay would.
func kill(t *testing.T, conn *pgx.Conn, device string, sequence int64, state, code string) {
	t.Helper()
	tag, err := conn.Exec(t.Context(), `INSERT INTO outbox_dead (position, bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence,
		source, traceparent, correlation_id, causation_id, payload, occurred_at, created_at, state, row_attempts, error_code, error)
		SELECT position, bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence,
		source, traceparent, correlation_id, causation_id, payload, occurred_at, created_at, $3, 1, $4, 'the broker said no'
		FROM outbox WHERE aggregate_id = $1 AND sequence = $2`, device, sequence, state, code)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("kill %s/%d: %v, %v", device, sequence, tag, err)
	}
}

func TestStatus_ShowsEveryTrouble(t *testing.T) {
	t.Parallel()
	url, _ := troubledWorld(t)
	golden(t, "status.txt", must(t, "status", "--database-url", url, "--sample", "0"))
	if all := must(t, "status", "--database-url", url, "--sample", "0", "--all"); strings.Count(all, "\n") < 64 {
		t.Errorf("--all shows\n%s", all)
	}
}

func TestStatus_JSONIsTheContract(t *testing.T) {
	t.Parallel()
	url, _ := troubledWorld(t)
	var report statusReport
	if err := json.Unmarshal([]byte(must(t, "status", "--database-url", url, "--sample", "10ms", "--json")), &report); err != nil {
		t.Fatal(err)
	}
	if report.Totals.Pending != 8 || report.Totals.Unowned != 2 || report.Totals.Halted != 1 || report.Totals.Failing != 1 || report.Totals.PublishedPerSecond == nil {
		t.Errorf("totals %+v", report.Totals)
	}
	report.Buckets = report.Buckets[bucketOf("d1") : bucketOf("d1")+1]
	var one strings.Builder
	if err := printJSON(&one, report); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.json", one.String())
}

// TestStatus_AnyGroupMayLook runs it with the rights of each group role and nothing more.
func TestStatus_AnyGroupMayLook(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	conn := connect(t, url)
	for _, role := range []string{"hubstate_relay", "hubstate_operator", "hubstate_reader"} {
		exec(t, conn, "SET ROLE "+role)
		for name, sql := range map[string]string{"buckets": selectBuckets, "published": selectPublished, "instances": selectInstances, "dead": selectDeadCounts} {
			var args []any
			if name == "buckets" {
				args = append(args, 10)
			}
			if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
				t.Errorf("%s as %s: %v", name, role, err)
			}
		}
		exec(t, conn, "RESET ROLE")
	}
}

// TestOutboxStatus_EveryRowHasOneFate_O5 asks the view about every row of the troubled world.
func TestOutboxStatus_EveryRowHasOneFate_O5(t *testing.T) {
	t.Parallel()
	_, conn := troubledWorld(t)
	exec(t, conn, "DELETE FROM outbox_skipped") // its event is behind the cursor: the range must not turn into "sent"
	rows, err := conn.Query(t.Context(), `SELECT format('%s/%s %s %s %s', aggregate_id, sequence, status, coalesce(last_error_code, '-'), coalesce(owner, '-'))
		FROM outbox_status ORDER BY aggregate_id, sequence`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"d0/1 superseded - -", "d0/2 superseded - -", "d0/3 sent - -",
		"d1/1 sent - -", "d1/2 pending NOT_ENOUGH_REPLICAS r1/aaaa", "d1/3 pending NOT_ENOUGH_REPLICAS r1/aaaa",
		"d2/1 pending - -", "d2/2 pending - -", "d2/3 pending - -",
		"d3/1 pending - r2/bbbb", "d3/2 pending - r2/bbbb", "d3/3 pending - r2/bbbb",
		"d4/1 dead MESSAGE_TOO_LARGE -", "d4/2 held HELD -", "d4/3 sent - -",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
