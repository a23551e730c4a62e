package partitions

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The child is this test binary again: it takes one turn and kills itself at a named point.
const (
	childEnv       = "HUBSTATE_PARTITIONS_CHILD" // the failpoint; "none" kills nothing and prints the points it passed
	childURL       = "HUBSTATE_PARTITIONS_URL"
	childDir       = "HUBSTATE_PARTITIONS_DIR"
	childOffset    = "HUBSTATE_PARTITIONS_OFFSET"
	childPointMark = "point: "
)

// killPoints are all points of a turn. TestKill_ListNamesEveryPoint keeps the list complete.
func killPoints() []string {
	return []string{
		"adopt", "adopt.committed", "archive.checked", "archive.described", "archive.named", "archive.recorded", "archive.writing",
		"archive.written", "attach", "attach.committed", "create", "create.committed", "discard", "discard.committed", "drop",
		"drop.committed", "drop.detached", "drop.verified", "expire", "finalize", "forget", "forget.committed", "seal.barrier",
		"seal.detached", "seal.floor", "seal.floor.committed", "seal.guard", "seal.record", "seal.record.committed", "turn.recorded",
	}
}

// killConfig makes a turn over killScene pass every point: the interval is halved, so runway tables are made anew.
func killConfig(url, dir string, offset time.Duration) Config {
	f := &fixture{url: url, clock: &clock{offset: offset}, dir: Dir(dir)}
	cfg := f.configOf("killed")
	cfg.Interval = step / 2
	cfg.Retain = []Retention{{"audit", 60 * 24 * time.Hour}}
	return cfg
}

func childMain() int {
	offset, err := time.ParseDuration(os.Getenv(childOffset))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cfg := killConfig(os.Getenv(childURL), os.Getenv(childDir), offset)
	cfg.failpoint = func(point string) {
		fmt.Println(childPointMark + point)
		if point == os.Getenv(childEnv) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Hour) // until the signal arrives
		}
	}
	m, err := New(cfg)
	if err == nil {
		_, err = m.Once(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// killScene is a database in which one turn has everything to do.
type killScene struct {
	*fixture
	offset  time.Duration
	mu      sync.Mutex
	copies  int
	archive string
}

const killRows = 60

func newKillScene(t *testing.T) *killScene {
	f := setup(t)
	cfg := f.config()
	writer := f.connect("hubstate_ingest")
	f.turn(cfg)
	old := f.state().Partitions
	f.write(writer, f.devices(20)...)
	f.drain()
	f.clock.forward(step)
	f.turn(cfg) // the first is archived
	f.write(writer, f.devices(20)...)
	f.drain()
	f.exec(`UPDATE partition_spec SET floor = $1`, old[1].To)
	f.write(writer, f.devices(20)...)
	f.drain()
	f.clock.forward(2 * step) // the second and third have ended
	f.leaveDetachPending(old[1].Name)
	f.exec(`DELETE FROM partition_ledger WHERE name = $1`, f.state().Partitions[3].Name)
	last := f.state().Partitions[len(f.state().Partitions)-1].Name
	f.exec(`DROP TABLE ` + last)
	f.clock.forward(8 * step)
	return &killScene{fixture: f, offset: f.clock.offset, archive: string(f.dir)}
}

// leaveDetachPending is a maintainer that was interrupted while its DETACH waited for a reader.
func (f *fixture) leaveDetachPending(table string) {
	f.Helper()
	f.exec(`UPDATE partition_ledger SET phase = 'sealing' WHERE name = $1`, table)
	f.exec(`UPDATE partition_spec SET floor = greatest(floor, (SELECT upper_at FROM partition_ledger WHERE name = $1))`, table)
	reader, err := f.connect("").Begin(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	if _, err := reader.Exec(f.Context(), `SELECT count(*) FROM outbox`); err != nil {
		f.Fatal(err)
	}
	f.exec(`SET lock_timeout = '20ms'`)
	if _, err := f.conn.Exec(f.Context(), `ALTER TABLE outbox DETACH PARTITION `+table+` CONCURRENTLY`); !isLockTimeout(err) {
		f.Fatalf("detach under a reader: %v, want a lock timeout", err)
	}
	f.exec(`RESET lock_timeout`)
	if err := reader.Rollback(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// copy makes a database and an archive directory like the scene's.
func (s *killScene) copy(t *testing.T) *fixture {
	t.Helper()
	cfg, err := pgx.ParseConfig(s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock() // one copy of a template at a time
	defer s.mu.Unlock()
	s.copies++
	name := fmt.Sprintf("%s_kill_%d", cfg.Database, s.copies)
	admin := s.admin(t)
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+cfg.Database); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(s.archive)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.admin(t).Exec(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{TB: t, url: strings.Replace(s.url, "/"+cfg.Database, "/"+name, 1), clock: &clock{offset: s.offset}, dir: Dir(dir)}
	f.conn = f.connect("")
	return f
}

func (s *killScene) admin(t *testing.T) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(s.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Database = "postgres"
	conn, err := pgx.ConnectConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// runChild takes a turn in a process of its own.
func (f *fixture) runChild(point string) (passed []string, err error) {
	f.Helper()
	out, err := f.child(point).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), childPointMark); ok {
			passed = append(passed, name)
		}
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return passed, err
}

const sessionsOfChild = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'maintainer of killed'`

// TestKill_NextMaintainerFinishes kills a maintainer with SIGKILL at each point of each step. Afterwards the next one
// finishes, and database, ledger and archive directory agree to the last table and file.
func TestKill_NextMaintainerFinishes_P2(t *testing.T) {
	t.Parallel()
	scene := newKillScene(t)
	scene.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	_ = scene.conn.Close(t.Context()) // a template has no sessions
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		f := scene.copy(t)
		passed, err := f.runChild("none")
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(passed)
		if got := slices.Compact(passed); !slices.Equal(got, killPoints()) {
			t.Errorf("a full turn passes\n%v\nthe list has\n%v", got, killPoints())
		}
		f.checkFinished()
	})
	for _, point := range killPoints() {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			f := scene.copy(t)
			if passed, err := f.runChild(point); err == nil || !slices.Contains(passed, point) {
				t.Fatalf("the child passed %v and ended with %v, want it killed at %s", passed, err, point)
			}
			cfg := killConfig(f.url, string(f.dir), f.clock.offset)
			f.eventually("the server notices that the child is gone", func() bool { return f.query(sessionsOfChild) == 0 })
			f.turn(cfg)
			f.checkFinished()
		})
	}
}

// checkFinished compares catalogue, ledger, files and rows.
func (f *fixture) checkFinished() {
	f.Helper()
	where := map[Phase]Place{Ahead: Alone, Live: Attached, Sealed: History, Archived: History}
	for _, p := range f.state().Partitions {
		if where[p.Phase] != p.Place {
			f.Errorf("%s is %s but %s", p.Name, p.Phase, p.Place)
		}
	}
	orphans := f.query(`SELECT count(*) FROM pg_class c WHERE relkind = 'r' AND relname LIKE 'outbox\_p%' AND NOT EXISTS
		(SELECT FROM partition_ledger WHERE name = relname AND phase <> 'dropped')`)
	if orphans != 0 {
		f.Errorf("%d tables that the ledger does not know", orphans)
	}
	f.checkFiles()
	f.checkRows()
	again := Plan(f.judged(), f.clock.at(time.Now()), killConfig(f.url, string(f.dir), 0).withDefaults().Spec)
	for _, a := range again {
		if a.Kind != Wait && a.Kind != Expire {
			f.Errorf("not finished: %s", a)
		}
	}
}

// checkFiles wants each archive complete and recorded, and no other file.
func (f *fixture) checkFiles() {
	f.Helper()
	want := []string{}
	rows, err := f.conn.Query(f.Context(), `SELECT name FROM partition_ledger WHERE archive IS NOT NULL ORDER BY name`)
	if err != nil {
		f.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		want = append(want, name+".json", name+".parquet")
		if _, err := Verify(f.Context(), f.dir, name); err != nil {
			f.Error(err)
		}
	}
	entries, err := os.ReadDir(string(f.dir))
	if err != nil {
		f.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	if !slices.Equal(have, want) {
		f.Errorf("archive directory %s holds\n%v\nthe ledger says\n%v", filepath.Base(string(f.dir)), have, want)
	}
}

// checkRows counts each row once, in the outbox, in the history, or in the archive of what was dropped.
func (f *fixture) checkRows() {
	f.Helper()
	rows, err := f.conn.Query(f.Context(), `SELECT name FROM partition_ledger WHERE phase = 'dropped' AND rows > 0`)
	if err != nil {
		f.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.Fatal(err)
	}
	union := `SELECT position FROM outbox UNION ALL SELECT position FROM outbox_history`
	for _, name := range names {
		if _, err := Restore(f.Context(), f.conn, f.dir, name, "restored_"+name); err != nil {
			f.Fatal(err)
		}
		union += ` UNION ALL SELECT position FROM restored_` + name
	}
	if all, distinct := f.query(`SELECT count(*) FROM (`+union+`) u`), f.query(`SELECT count(DISTINCT position) FROM (`+union+`) u`); all != killRows || distinct != killRows {
		f.Errorf("%d rows, %d different ones, want %d", all, distinct, killRows)
	}
}
