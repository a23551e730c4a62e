package main

import (
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5"
)

// cell is a database server of a test's own with a topic, for what only a whole server can show.
type cell struct {
	*testing.T
	dir     string
	server  *embedded.Postgres
	brokers []string
	url     string
	conn    *pgx.Conn
}

func newCell(t *testing.T) *cell {
	t.Helper()
	if os.Getenv("HUBSTATE_TEST_LONG") == "" {
		t.Skip("starts two PostgreSQL servers: set HUBSTATE_TEST_LONG=1")
	}
	return startCell(t)
}

func startCell(t *testing.T) *cell {
	t.Helper()
	dir, err := os.MkdirTemp("", "hubstate-restore-")
	if err == nil {
		err = os.Chmod(dir, 0o711) // PostgreSQL runs as another user when we are root and must be able to pass
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &cell{T: t, dir: dir, brokers: testenv.FakeKafka(t).ListenAddrs()}
	c.start("primary")
	c.migrate()
	return c
}

// start runs the server whose data lie in name and makes it the cell's.
func (c *cell) start(name string) {
	c.Helper()
	server, err := embedded.StartPostgres(c.Context(), embedded.PostgresOptions{DataDir: filepath.Join(c.dir, name)})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = server.Stop(context.WithoutCancel(c.Context())) })
	c.server, c.url = server, server.URL()
	c.conn = connect(c.T, c.url)
}

// stop ends the cell's server.
func (c *cell) stop() {
	c.Helper()
	_ = c.conn.Close(c.Context())
	if err := c.server.Stop(c.Context()); err != nil {
		c.Fatal(err)
	}
}

func (c *cell) migrate() {
	c.Helper()
	must(c.T, append([]string{"migrate", "--database-url", c.url, "--kafka-brokers", c.brokers[0]}, topicFlags()...)...)
}

// baseBackup copies the running server to name with the backup functions of PostgreSQL, as pg_basebackup does: no recovery
// signal, the same system identifier and timeline. With standby it becomes one that follows this server.
func (c *cell) baseBackup(name string, standby bool) {
	c.Helper()
	from, to := filepath.Join(c.dir, "primary"), filepath.Join(c.dir, name)
	exec(c.T, c.conn, "SELECT pg_backup_start('test', true)")
	c.run("mkdir", to)
	c.run("cp", "-a", filepath.Join(from, "password"), filepath.Join(from, "cluster"), to)
	var label string
	if err := c.conn.QueryRow(c.Context(), "SELECT labelfile FROM pg_backup_stop(false)").Scan(&label); err != nil {
		c.Fatal(err)
	}
	cluster := filepath.Join(to, "cluster")
	c.run("cp", "-a", filepath.Join(from, "cluster", "pg_wal"), cluster)
	c.run("rm", "-f", filepath.Join(cluster, "postmaster.pid"), filepath.Join(cluster, "postmaster.opts"))
	c.write(filepath.Join(cluster, "backup_label"), label)
	if standby {
		c.write(filepath.Join(cluster, "standby.signal"), "")
		c.write(filepath.Join(cluster, "postgresql.auto.conf"), fmt.Sprintf("primary_conninfo = '%s&application_name=%s'\n", c.url, name))
	}
}

func (c *cell) run(program string, args ...string) {
	c.Helper()
	if out, err := osexec.CommandContext(c.Context(), program, args...).CombinedOutput(); err != nil {
		c.Fatalf("%s: %v\n%s", program, err, out)
	}
}

func (c *cell) write(path, text string) {
	c.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
}

func (c *cell) identity() string {
	c.Helper()
	var id string
	if err := c.conn.QueryRow(c.Context(), "SELECT system_identifier || '/' || timeline_id FROM pg_control_system(), pg_control_checkpoint()").Scan(&id); err != nil {
		c.Fatal(err)
	}
	return id
}

// publish has a relay publish the events and ends it.
func (c *cell) publish(events ...event) {
	c.Helper()
	stop := startRelay(c.T, c.url, c.brokers)
	for _, e := range events {
		report(c.T, c.conn, e)
	}
	published(c.T, c.conn)
	stop()
}

// firstPast is what every scenario begins with: two devices, two events each.
func (c *cell) firstPast() {
	c.Helper()
	c.publish(event{device: "d1", sequence: 1}, event{device: "d2", sequence: 1}, event{device: "d1", sequence: 2}, event{device: "d2", sequence: 2})
}

// afterRebase rebases, publishes one more event of d1 and compares what a consumer makes of everything.
func (c *cell) afterRebase(stop func(), next int64, want map[string]string) {
	c.Helper()
	done := rebaseJSON(c.T, c.url, c.brokers, "--yes", "--reason", "restored")
	report(c.T, c.conn, event{device: "d1", epoch: done.NewEpoch, sequence: next})
	published(c.T, c.conn)
	stop()
	records := 0
	for _, w := range want {
		records += strings.Count(w, ",") + 1
	}
	got := consume(c.T, c.brokers, testenv.Settings().Topic, records)
	for device, w := range want {
		if v := epochs(c.T, got[device]); v != w {
			c.Errorf("%s: %s; want %s", device, v, w)
		}
	}
}

// TestRestore_ABaseBackupWithoutRecoverySignalHalts: nothing in PostgreSQL tells such a server from the one it is a copy
// of; only the topic knows better.
func TestRestore_ABaseBackupWithoutRecoverySignalHalts_O2(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.firstPast()
	c.baseBackup("backup", false)
	before := c.identity()
	c.publish(event{device: "d1", sequence: 3}) // lost by the restore
	c.stop()
	c.start("backup")
	if after := c.identity(); after != before {
		t.Fatalf("the copy is %s, the original %s: the test shows less than it says", after, before)
	}
	stop := startRelay(t, c.url, c.brokers)
	halted(t, c.conn, bucketOf("d1"))
	c.afterRebase(stop, 4, map[string]string{
		"d1": "1/1 baseline, 1/2 apply, 1/3 apply, N/3 new_epoch, N/4 apply", "d2": "1/1 baseline, 1/2 apply, N/3 new_epoch",
	})
}

func TestRestore_ADroppedAndCreatedDatabaseHalts_O2(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.firstPast()
	_ = c.conn.Close(t.Context())
	admin := connect(t, strings.Replace(c.url, "/hubstate?", "/postgres?", 1))
	exec(t, admin, "DROP DATABASE hubstate WITH (FORCE)")
	exec(t, admin, "CREATE DATABASE hubstate")
	c.conn = connect(t, c.url)
	c.migrate()
	stop := startRelay(t, c.url, c.brokers)
	eventually(t, time.Minute, func() error {
		var n int
		err := c.conn.QueryRow(t.Context(), "SELECT count(*) FROM outbox_bucket WHERE halted IS NOT NULL").Scan(&n)
		if err == nil && n != 2 {
			err = fmt.Errorf("%d buckets are halted, want those of d1 and d2", n)
		}
		return err
	})
	c.afterRebase(stop, 1, map[string]string{"d1": "1/1 baseline, 1/2 apply, N/1 new_epoch", "d2": "1/1 baseline, 1/2 apply"})
}

// TestRestore_APromotedStandby: one that lacks what was published halts; one that lacks nothing goes on by itself, on its
// new timeline.
func TestRestore_APromotedStandby_O2(t *testing.T) {
	t.Parallel()
	for name, lagging := range map[string]bool{"lagging": true, "up to date": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t)
			c.firstPast()
			c.baseBackup("standby", true)
			primary, primaryConn := c.server, c.conn
			c.start("standby")
			c.caughtUp(primaryConn)
			standbyURL := c.url
			if lagging { // the standby is away while the primary publishes
				c.stop()
			}
			c.url, c.conn = primary.URL(), primaryConn
			c.publish(event{device: "d1", sequence: 3})
			if !lagging {
				standby := connect(t, standbyURL)
				c.conn, c.url = standby, standbyURL
				c.caughtUp(primaryConn)
			}
			_ = primaryConn.Close(t.Context())
			if err := primary.Kill(); err != nil {
				t.Fatal(err)
			}
			if lagging {
				c.start("standby")
			}
			exec(t, c.conn, "SELECT pg_promote()")
			c.goOn(lagging)
		})
	}
}

// goOn is what the relays of the promoted standby do.
func (c *cell) goOn(lagging bool) {
	c.Helper()
	stop := startRelay(c.T, c.url, c.brokers)
	if lagging {
		halted(c.T, c.conn, bucketOf("d1"))
		c.afterRebase(stop, 4, map[string]string{
			"d1": "1/1 baseline, 1/2 apply, 1/3 apply, N/3 new_epoch, N/4 apply", "d2": "1/1 baseline, 1/2 apply, N/3 new_epoch",
		})
		return
	}
	report(c.T, c.conn, event{device: "d1", sequence: 4})
	published(c.T, c.conn)
	stop()
	if v := epochs(c.T, consume(c.T, c.brokers, testenv.Settings().Topic, 6)["d1"]); v != "1/1 baseline, 1/2 apply, 1/3 apply, 1/4 apply" {
		c.Errorf("d1: %s", v)
	}
}

// caughtUp waits until the cell's server, a standby, has replayed what primary has flushed.
func (c *cell) caughtUp(primary *pgx.Conn) {
	c.Helper()
	eventually(c.T, time.Minute, func() error {
		var end string
		if err := primary.QueryRow(c.Context(), "SELECT pg_current_wal_flush_lsn()::text").Scan(&end); err != nil {
			return err
		}
		var there bool
		err := c.conn.QueryRow(c.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", end).Scan(&there)
		if err == nil && !there {
			err = fmt.Errorf("the standby has not replayed %s", end)
		}
		return err
	})
}
