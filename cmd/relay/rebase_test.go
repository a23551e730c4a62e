package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// report commits one event as ingest would, with the stream's state.
func report(t *testing.T, conn *pgx.Conn, e event) {
	t.Helper()
	exec(t, conn, `INSERT INTO device_state (device_id, stream, hub_id, bucket, epoch, sequence, received_at, state, state_hash, missed)
		VALUES ($1, 'state', 'h1', $2, $3, $4, now(), convert_to($5, 'UTF8'), '\x00', 4)
		ON CONFLICT (device_id, stream) DO UPDATE SET epoch = excluded.epoch, sequence = excluded.sequence, state = excluded.state`,
		e.device, bucketOf(e.device), max(e.epoch, 1), e.sequence, fmt.Sprintf(`{"n":%d}`, e.sequence))
	appendEvents(t, conn, e)
}

// published waits until everything committed is behind its cursor.
func published(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	eventually(t, 90*time.Second, func() error {
		if n := waiting(t, conn); n > 0 {
			return fmt.Errorf("%d rows wait", n)
		}
		return nil
	})
}

// waiting counts the committed rows that are not behind their cursor.
func waiting(t *testing.T, conn *pgx.Conn) (rows int) {
	t.Helper()
	err := conn.QueryRow(t.Context(), "SELECT count(*) FROM outbox o JOIN outbox_bucket b USING (bucket) WHERE o.position > b.cursor AND b.halted IS NULL").Scan(&rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// copyDatabase is a restored backup: a copy of the database as it is now, with the same system identifier and timeline.
func copyDatabase(t *testing.T, from string) string {
	t.Helper()
	u, err := url.Parse(from)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	admin := connect(t, u.String())
	backup := name + "_backup"
	exec(t, admin, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", backup, name))
	t.Cleanup(func() {
		_, _ = admin.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", backup))
	})
	u.Path = "/" + backup
	return u.String()
}

// TestRebase_ARestoredBackupHaltsAndStartsANewEpoch is the whole way: publish, back up, publish more, restore the backup.
// The relay halts the buckets of which the topic knows more; reconcile says why; rebase starts an epoch in which every
// stream is said again; a consumer that saw the lost events accepts it.
func TestRebase_ARestoredBackupHaltsAndStartsANewEpoch_O2(t *testing.T) {
	t.Parallel()
	original := testenv.Postgres(t)
	brokers := fakeTopic(t)
	conn := connect(t, original)
	stop := startRelay(t, original, brokers)
	for sequence := int64(1); sequence <= 2; sequence++ {
		report(t, conn, event{device: "d1", sequence: sequence})
		report(t, conn, event{device: "d2", sequence: sequence})
	}
	published(t, conn)
	stop()
	_ = conn.Close(t.Context())
	backup := copyDatabase(t, original)
	conn = connect(t, original)
	stop = startRelay(t, original, brokers)
	report(t, conn, event{device: "d1", sequence: 3}) // lost by the restore
	published(t, conn)
	stop()

	conn = connect(t, backup)
	report(t, conn, event{device: "d1", sequence: 3, payload: `{"another":"past"}`})
	stop = startRelay(t, backup, brokers)
	halted(t, conn, bucketOf("d1"))
	out, err := relay(t.Context(), "reconcile", "--database-url", backup, "--kafka-brokers", brokers[0])
	if !errors.Is(err, errDiffers) || !strings.Contains(out, fmt.Sprintf("bucket %d:", bucketOf("d1"))) || strings.Contains(out, fmt.Sprintf("bucket %d:", bucketOf("d2"))) {
		t.Errorf("reconcile: %v\n%s", err, out)
	}
	dry := rebaseJSON(t, backup, brokers)
	if dry.Done || dry.Restated != 2 || dry.Superseded != 1 || dry.OldEpoch != 1 || len(dry.Buckets) != 1 || dry.Buckets[0].Bucket != bucketOf("d1") {
		t.Errorf("dry run %+v", dry)
	}
	halted(t, conn, bucketOf("d1")) // the dry run changed nothing
	done := rebaseJSON(t, backup, brokers, "--yes", "--reason", "restored after disk loss", "--actor", "anna")
	report(t, conn, event{device: "d1", epoch: done.NewEpoch, sequence: 5})
	published(t, conn)
	stop()

	got := consume(t, brokers, testenv.Settings().Topic, 4+1+2+1)
	if v := epochs(t, got["d1"]); v != "1/1 baseline, 1/2 apply, 1/3 apply, N/4 new_epoch, N/5 apply" {
		t.Errorf("d1: %s", v)
	}
	if v := epochs(t, got["d2"]); v != "1/1 baseline, 1/2 apply, N/3 new_epoch" {
		t.Errorf("d2: %s", v)
	}
	restated := got["d1"][3]
	e, err := devicestate.DecodeEvent(restated.Value)
	if err != nil || !e.Marks.Has(devicestate.MarkRestated) || string(e.State) != `{"n":3}` || e.Missed != 4 || e.Epoch != done.NewEpoch {
		t.Errorf("restated event %+v, %v", e, err)
	}
	if out := must(t, "reconcile", "--database-url", backup, "--kafka-brokers", brokers[0]); !strings.Contains(out, "agree") {
		t.Error(out)
	}
	var superseded string
	if err := conn.QueryRow(t.Context(), "SELECT string_agg(aggregate_id || ' ' || epoch || '/' || sequence, ',') FROM outbox_status WHERE status = 'superseded'").Scan(&superseded); err != nil || superseded != "d1 1/3" {
		t.Errorf("superseded: %s, %v", superseded, err)
	}
	var who string
	if err := conn.QueryRow(t.Context(), "SELECT actor || ': ' || reason FROM audit WHERE action = 'rebase'").Scan(&who); err != nil || who != "anna: restored after disk loss" {
		t.Errorf("audit: %s, %v", who, err)
	}
}

func halted(t *testing.T, conn *pgx.Conn, bucket int16) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		var why *string
		var others int
		err := conn.QueryRow(t.Context(), "SELECT (SELECT halted FROM outbox_bucket WHERE bucket = $1), (SELECT count(*) FROM outbox_bucket WHERE bucket <> $1 AND halted IS NOT NULL)", bucket).Scan(&why, &others)
		if err == nil && (why == nil || !strings.Contains(*why, "relay rebase")) {
			err = fmt.Errorf("bucket %d is not halted: %v", bucket, why)
		}
		if err == nil && others > 0 {
			t.Fatalf("%d other buckets are halted", others)
		}
		return err
	})
}

func rebaseJSON(t *testing.T, url string, brokers []string, more ...string) rebasePlan {
	t.Helper()
	var p rebasePlan
	args := append([]string{"rebase", "--database-url", url, "--kafka-brokers", brokers[0], "--json"}, more...)
	if err := json.Unmarshal([]byte(must(t, args...)), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// epochs is a consumer's gate over the first deliveries of one device; a new epoch is written N.
func epochs(t *testing.T, records []*kgo.Record) string {
	t.Helper()
	var at devicestate.Position
	var verdicts []string
	for _, r := range records {
		epoch, err := strconv.ParseInt(header(r, "ce_epoch"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sequence, err := strconv.ParseInt(header(r, "ce_sequence"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		next := devicestate.Position{Epoch: epoch, Sequence: sequence}
		v := at.Check(next, nil)
		if v.Applies() {
			at = next
		}
		name := "1"
		if epoch != 1 {
			name = "N"
		}
		verdicts = append(verdicts, fmt.Sprintf("%s/%d %s", name, sequence, v.Outcome))
	}
	return strings.Join(verdicts, ", ")
}

// TestRebase_MovesToAnotherTopic is the way out of a changed partition count: the relay refuses the topic and says so, the
// rebase takes the cell to a new one, and everything is said again there in a new epoch.
func TestRebase_MovesToAnotherTopic_O2(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	brokers := fakeTopic(t)
	conn := connect(t, url)
	report(t, conn, event{device: "d1", sequence: 1})
	stop := startRelay(t, url, brokers)
	published(t, conn)
	move := []string{"rebase", "--database-url", url, "--kafka-brokers", brokers[0], "--new-topic", "device-state-2", "--new-topic-partitions", "32"}
	if out := must(t, move...); !strings.Contains(out, "on topic device-state-2 (32 partitions)") || !strings.Contains(out, "dry run") {
		t.Errorf("dry run:\n%s", out)
	}
	move = append(move, "--yes", "--reason", "partitions were added")
	if _, err := relay(t.Context(), move...); err == nil || !strings.Contains(err.Error(), "stop them first") {
		t.Errorf("beside a living relay: %v", err)
	}
	stop()
	addPartitions(t, brokers, testenv.Settings().Topic, 128)
	_, err := relay(t.Context(), "run", "--database-url", url, "--kafka-brokers", brokers[0], "--admin-addr", "")
	if err == nil || !strings.Contains(err.Error(), "has 128 partitions, the database has recorded 64") || !strings.Contains(err.Error(), "--new-topic") {
		t.Errorf("a changed partition count: %v", err)
	}
	must(t, move...)
	stop = startRelay(t, url, brokers)
	published(t, conn)
	stop()
	if v := epochs(t, consume(t, brokers, "device-state-2", 1)["d1"]); v != "N/2 baseline" {
		t.Errorf("on the new topic: %s", v)
	}
}

func addPartitions(t *testing.T, brokers []string, topic string, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if r, err := kadm.NewClient(client).UpdatePartitions(t.Context(), n, topic); err != nil || r[topic].Err != nil {
		t.Fatal(err, r)
	}
}

// TestRebase_WaitsForOpenWritersAndHoldsNewOnesBack_O1: a writer that is open when the rebase starts is superseded with
// the rest, never half of each epoch.
func TestRebase_WaitsForOpenWriters_O1(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	brokers := fakeTopic(t)
	conn := connect(t, url)
	report(t, conn, event{device: "d1", sequence: 1})
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1868723576, $1)", bucketOf("d1")); err != nil {
		t.Fatal(err)
	}
	if _, err := relay(t.Context(), "rebase", "--database-url", url, "--kafka-brokers", brokers[0], "--yes", "--reason", "r", "--lock-timeout", "300ms"); err == nil || !strings.Contains(err.Error(), "lock all buckets") {
		t.Errorf("rebase beside an open writer: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := rebaseJSON(t, url, brokers, "--yes", "--reason", "r"); p.Superseded != 1 || p.Restated != 1 {
		t.Errorf("plan %+v", p)
	}
	// Twice: the epoch only grows, and the first one's unpublished restatement is superseded by the second.
	first := rebaseJSON(t, url, brokers)
	if p := rebaseJSON(t, url, brokers, "--yes", "--reason", "again"); p.NewEpoch <= first.OldEpoch || p.Superseded != 1 {
		t.Errorf("second %+v after %+v", p, first)
	}
}

func TestReconcile_FindsWhatDoesNotAgree(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	conn := connect(t, url)
	for sequence := int64(1); sequence <= 3; sequence++ {
		report(t, conn, event{device: "d1", sequence: sequence})
	}
	if out := must(t, "reconcile", "--database-url", url); out != "cell test: states, outbox agree\n" {
		t.Error(out)
	}
	appendEvents(t, conn, event{device: "d1", sequence: 6}, event{device: "d2", sequence: 1}) // neither has its state
	out, err := relay(t.Context(), "reconcile", "--database-url", url)
	if !errors.Is(err, errDiffers) {
		t.Errorf("error %v", err)
	}
	golden(t, "reconcile.txt", out)
	out, _ = relay(t.Context(), "reconcile", "--database-url", url, "--json")
	golden(t, "reconcile.json", out)
}
