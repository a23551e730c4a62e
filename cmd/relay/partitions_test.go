package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
)

// upkeep is a database whose first partition ended two days ago, with published events of two devices.
type upkeep struct {
	*testing.T
	url, archive string
	config       string // quiet: must returns what is logged too
	conn         *pgx.Conn
}

func newUpkeep(t *testing.T) *upkeep {
	u := &upkeep{T: t, url: testenv.Postgres(t), archive: t.TempDir()}
	u.conn = connect(t, u.url)
	u.config = filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(u.config, []byte("log_level: error\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u.run("run", "--once")
	appendEvents(t, u.conn, event{device: "d-1", sequence: 1}, event{device: "d-2", sequence: 1}, event{device: "d-1", sequence: 2})
	return u
}

// run calls a partitions command over this database and its archives.
func (u *upkeep) run(args ...string) string {
	u.Helper()
	return must(u.T, u.args(args...)...)
}

func (u *upkeep) args(args ...string) []string {
	return append(append([]string{"partitions"}, args...), "--database-url", u.url, "--archive-dir", u.archive, "--partition-runway", "3h", "--config", u.config)
}

// age moves a partition and its rows back by some days, as if they had passed, and returns its name of that day.
func (u *upkeep) age(name string, days int) (aged string) {
	u.Helper()
	err := u.conn.QueryRow(u.Context(), `SELECT 'outbox' || to_char((lower_at - make_interval(days => $2)) AT TIME ZONE 'UTC', '"_p"YYYYMMDD"_"HH24MI') FROM partition_ledger WHERE name = $1`, name, days).Scan(&aged)
	if err != nil {
		u.Fatal(err)
	}
	back := fmt.Sprintf("- make_interval(days => %d)", days)
	for _, sql := range []string{
		"ALTER TABLE outbox DETACH PARTITION " + name,
		"ALTER TABLE " + name + " DROP CONSTRAINT " + name + "_range_check",
		"ALTER TABLE " + name + " RENAME TO " + aged,
		"UPDATE " + aged + " SET created_at = created_at " + back,
		"UPDATE partition_ledger SET lower_at = lower_at " + back + ", upper_at = upper_at " + back + ", name = '" + aged + "' WHERE name = '" + name + "'",
		"UPDATE erasure SET until_at = until_at " + back,
		"SELECT attach_partition('outbox', '" + aged + "')",
	} {
		if _, err := u.conn.Exec(u.Context(), sql); err != nil {
			u.Fatalf("%s: %v", sql, err)
		}
	}
	return aged
}

func (u *upkeep) publishAll() {
	u.Helper()
	_, err := u.conn.Exec(u.Context(), `UPDATE outbox_bucket b SET cursor = greatest(cursor, coalesce((SELECT max(position) FROM outbox o WHERE o.bucket = b.bucket), 0))`)
	if err != nil {
		u.Fatal(err)
	}
}

func (u *upkeep) current() (name string) {
	u.Helper()
	err := u.conn.QueryRow(u.Context(), `SELECT tableoid::regclass::text FROM outbox LIMIT 1`).Scan(&name)
	if err != nil {
		u.Fatal(err)
	}
	return name
}

func (u *upkeep) count(sql string, args ...any) (n int) {
	u.Helper()
	if err := u.conn.QueryRow(u.Context(), sql, args...).Scan(&n); err != nil {
		u.Fatal(err)
	}
	return n
}

// TestPartitions_CommandsFollowAPartitionThroughItsLife walks the commands as an operator does, with the failures.
func TestPartitions_CommandsFollowAPartitionThroughItsLife(t *testing.T) {
	t.Parallel()
	u := newUpkeep(t)
	name := u.age(u.current(), 20)

	if out := u.run("plan"); !strings.Contains(out, "wait") || !strings.Contains(out, name) {
		t.Errorf("the plan does not wait for the unpublished events of %s:\n%s", name, out)
	}
	u.publishAll()
	if out := u.run("run", "--once"); !strings.Contains(out, "seal") || !strings.Contains(out, "archive") || !strings.Contains(out, "drops are switched off") {
		t.Errorf("one turn sealed, archived and kept:\n%s", out)
	}
	if out := u.run("verify"); !strings.Contains(out, "good") {
		t.Errorf("verify: %s", out)
	}
	golden(t, "partitions_list.txt", unsized(u.run("list")))
	golden(t, "partitions_list.json", unsized(u.run("list", "--json")))

	if out := u.run("run", "--once", "--drop", "--json"); !strings.Contains(out, `"drop"`) {
		t.Errorf("with --drop it was not dropped:\n%s", out)
	}
	u.run("restore", name, "--into", "looked_at")
	if n := u.count(`SELECT count(*) FROM looked_at WHERE aggregate_id = 'd-1'`); n != 2 {
		t.Errorf("the restored table has %d events of d-1, want 2", n)
	}
	if n := u.count(`SELECT count(*) FROM audit WHERE action = 'restore' AND subject = $1`, name); n != 1 {
		t.Error("the restore was not audited")
	}
	if _, err := relay(t.Context(), u.args("restore", name, "--into", "looked_at")...); err == nil {
		t.Error("restored over an existing table")
	}
	u.damage(name)
	out, err := relay(t.Context(), u.args("verify", "--json")...)
	if err == nil || !strings.Contains(out, `"ok": false`) {
		t.Errorf("verify of a damaged archive: %v\n%s", err, out)
	}
}

// unsized masks what depends on the server's version and on the minute of the hour.
func unsized(out string) string {
	out = regexp.MustCompile(`[0-9.]+ (B|KiB)|"bytes": [0-9]+`).ReplaceAllString(out, "SIZE")
	return regexp.MustCompile(`ready for [0-9hms.]+`).ReplaceAllString(out, "ready for AGE")
}

func (u *upkeep) damage(name string) {
	u.Helper()
	path := filepath.Join(u.archive, name+".parquet")
	data, err := os.ReadFile(path)
	if err != nil {
		u.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		u.Fatal(err)
	}
}

func TestPartitions_VerifyAndRestoreNeedAnArchiveDir(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	for _, args := range [][]string{{"verify"}, {"restore", "outbox_p20260301_1000"}} {
		if _, err := relay(t.Context(), append(append([]string{"partitions"}, args...), "--database-url", url)...); err == nil || !strings.Contains(err.Error(), "archive_dir") {
			t.Errorf("%v without archive_dir: %v", args, err)
		}
	}
}

// TestErase_RefusesUnpublishedThenErasesEverywhereInReach goes through state, gaps, rejects, dead letters, the sealed
// partition with its archive, and the partition that is still attached.
func TestErase_RefusesUnpublishedThenErasesEverywhereInReach(t *testing.T) {
	t.Parallel()
	u := newUpkeep(t)
	old := u.age(u.current(), 2)
	appendEvents(t, u.conn, event{device: "d-1", sequence: 3}, event{device: "d-2", sequence: 2})
	u.fillSideTables()

	erase := []string{"erase", "d-1", "--reason", "asked to", "--database-url", u.url}
	if _, err := relay(t.Context(), append(erase, "--yes")...); err == nil || !strings.Contains(err.Error(), "not published") {
		t.Fatalf("erasing with an unpublished event: %v", err)
	}
	u.publishAll()
	u.setDead("dead")
	if _, err := relay(t.Context(), append(erase, "--yes")...); err == nil || !strings.Contains(err.Error(), "not decided") {
		t.Fatalf("erasing with an undecided dead letter: %v", err)
	}
	u.setDead("discarded")
	u.run("run", "--once")
	before := u.archiveSHA(old)

	golden(t, "erase_dry_run.txt", must(t, erase...))
	if n := u.count(`SELECT count(*) FROM device_state WHERE device_id = 'd-1'`); n != 1 {
		t.Fatal("a dry run erased the state")
	}
	golden(t, "erase.json", must(t, append(erase, "--yes", "--json")...))
	for _, table := range []string{"device_state WHERE device_id", "stream_gap WHERE device_id", "ingest_reject WHERE device_id", "outbox_dead WHERE aggregate_id", "outbox_history WHERE aggregate_id"} {
		if n := u.count(`SELECT count(*) FROM ` + table + ` = 'd-1'`); n != 0 {
			t.Errorf("%d rows of d-1 in %s", n, table)
		}
		if n := u.count(`SELECT count(*) FROM ` + table + ` = 'd-2'`); n == 0 {
			t.Errorf("the rows of d-2 in %s are gone", table)
		}
	}
	if epoch := u.nextEpoch("d-1"); epoch != 2 {
		t.Errorf("the next life starts in epoch %d, want 2", epoch)
	}
	u.run("run", "--once")
	if after := u.archiveSHA(old); after == before || u.count(`SELECT rows FROM partition_ledger WHERE name = $1`, old) != 1 {
		t.Error("the archive of a table that still stands was not written again without the device")
	}
	u.checkAttachedGoesWithSealing()
}

// nextEpoch is what ingest gives a stream that has no state.
func (u *upkeep) nextEpoch(device string) int64 {
	u.Helper()
	var b pgx.Batch
	txn := outbox.Begin(&b, testenv.Settings().Buckets, []string{device})
	if err := pgx.BeginFunc(u.Context(), u.conn, func(tx pgx.Tx) error { return tx.SendBatch(u.Context(), &b).Close() }); err != nil {
		u.Fatal(err)
	}
	return txn.Epoch()
}

// checkAttachedGoesWithSealing lets the attached partition end: the erased device's old event goes with its sealing, the
// one of its next life stays.
func (u *upkeep) checkAttachedGoesWithSealing() {
	u.Helper()
	appendEvents(u.T, u.conn, event{device: "d-1", sequence: 1, epoch: 2})
	if n := u.count(`SELECT count(*) FROM erasure WHERE finished_at IS NULL`); n != 1 {
		u.Errorf("%d open erasures, want 1", n)
	}
	u.publishAll()
	u.age(u.current(), 1)
	u.run("run", "--once")
	if n := u.count(`SELECT count(*) FROM outbox_history WHERE aggregate_id = 'd-1' AND epoch = 1`); n != 0 {
		u.Errorf("%d events of the erased life were sealed", n)
	}
	if n := u.count(`SELECT count(*) FROM outbox_history WHERE aggregate_id = 'd-1' AND epoch = 2`); n != 1 {
		u.Errorf("%d events of the next life were sealed, want 1", n)
	}
	if n := u.count(`SELECT count(*) FROM erasure WHERE finished_at IS NULL`); n != 0 {
		u.Errorf("%d erasures are still open", n)
	}
}

func (u *upkeep) archiveSHA(name string) string {
	u.Helper()
	var sha string
	if err := u.conn.QueryRow(u.Context(), `SELECT sha256 FROM partition_ledger WHERE name = $1 AND phase = 'archived'`, name).Scan(&sha); err != nil {
		u.Fatalf("archive of %s: %v", name, err)
	}
	return sha
}

// fillSideTables gives both devices a row in each table that knows devices.
func (u *upkeep) fillSideTables() {
	u.Helper()
	for _, sql := range []string{
		`INSERT INTO device_state (device_id, stream, hub_id, bucket, sequence, received_at, state, state_hash)
			SELECT DISTINCT aggregate_id, 'state', 'h1', bucket, 3, now(), '{}'::bytea, ''::bytea FROM outbox`,
		`INSERT INTO stream_gap (device_id, stream, from_counter, to_counter) VALUES ('d-1', 'state', 1, 2), ('d-2', 'state', 1, 2)`,
		`INSERT INTO ingest_reject (lane, topic, device_id, reason, detail, payload, received_at) VALUES ('l', 't', 'd-1', 'r', '', '', now()), ('l', 't', 'd-2', 'r', '', '', now())`,
		`INSERT INTO outbox_dead (position, bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, payload, created_at, state, error_code, error)
			SELECT DISTINCT ON (aggregate_id) position, bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, payload, created_at, 'discarded', 'X', 'x' FROM outbox`,
	} {
		if _, err := u.conn.Exec(u.Context(), sql); err != nil {
			u.Fatal(err)
		}
	}
}

func (u *upkeep) setDead(state string) {
	u.Helper()
	if _, err := u.conn.Exec(u.Context(), `UPDATE outbox_dead SET state = $1 WHERE aggregate_id = 'd-1'`, state); err != nil {
		u.Fatal(err)
	}
}

// TestPartitions_JSONIsOneDocument: --json prints nothing else.
func TestPartitions_JSONIsOneDocument(t *testing.T) {
	t.Parallel()
	u := newUpkeep(t)
	for _, args := range [][]string{{"list", "--json"}, {"plan", "--json"}, {"run", "--once", "--json"}, {"verify", "--json"}} {
		var doc struct{ Version int }
		if err := json.Unmarshal([]byte(u.run(args...)), &doc); err != nil || doc.Version != 1 {
			t.Errorf("%v: version %d, %v", args, doc.Version, err)
		}
	}
}
