package partitions

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// sealed makes a database with one sealed partition of n rows that has no archive yet, and returns its name.
func (f *fixture) sealed(n int) string {
	f.Helper()
	cfg := f.config()
	cfg.Store = nil
	f.turn(cfg)
	first := f.state().Partitions[0].Name
	f.write(f.connect("hubstate_ingest"), f.devices(n)...)
	f.drain()
	f.clock.forward(step)
	f.turn(cfg)
	if p := f.find(first); p.Phase != Sealed {
		f.Fatalf("%s is %s, want it sealed", first, p.Phase)
	}
	return first
}

// TestArchive_RestoreGivesBackEveryByte goes the whole way with values that encodings trip over.
func TestArchive_RestoreGivesBackEveryByte(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.sealed(10)
	f.exec(`INSERT INTO ` + first + ` SELECT 1000000 + i, (i - 32768)::int % 32768, md5(i::text)::uuid, '', 'd' || i % 7, E'\u2028ä', 32767, 's', -i, 9223372036854775807,
		'x', nullif('', ''), NULL, repeat('c', i), decode(repeat('00ff', i), 'hex'),
		CASE i % 3 WHEN 0 THEN 'infinity' WHEN 1 THEN NULL ELSE timestamptz '0001-01-01 00:00:00.000001+00' END,
		(SELECT lower_at FROM partition_ledger WHERE name = '` + first + `') + make_interval(secs => i) FROM generate_series(1, 900) i`)
	// These rows came past the guard; as decided rows they are at or below their cursors.
	f.exec(`UPDATE outbox_bucket SET cursor = 2000000`)
	f.turn(f.config())
	rows, err := Restore(t.Context(), f.connect("hubstate_maintainer"), f.dir, first, "restored", "hubstate_reader")
	if err != nil || rows != 910 {
		t.Fatalf("restored %d rows, %v; want 910", rows, err)
	}
	if n := f.query(`SELECT count(*) FROM (SELECT * FROM restored EXCEPT ALL SELECT * FROM ` + first + `) d`); n != 0 {
		t.Errorf("%d rows of the archive differ from the table", n)
	}
	if n := f.query(`SELECT count(*) FROM (SELECT * FROM ` + first + ` EXCEPT ALL SELECT * FROM restored) d`); n != 0 {
		t.Errorf("%d rows of the table are not in the archive", n)
	}
	man, err := Verify(t.Context(), f.dir, first)
	if err != nil || man.Rows != 910 || man.MaxPosition != 1000900 || man.SHA256 != f.find(first).SHA256 {
		t.Errorf("manifest %+v, %v", man, err)
	}
}

func TestRestore_RefusesAnExistingTableAndLeavesNothingOfADamagedArchive(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.sealed(500)
	f.turn(f.config())
	conn := f.connect("hubstate_maintainer")
	if _, err := Restore(t.Context(), conn, f.dir, first, "outbox"); err == nil {
		t.Fatal("restored into outbox")
	}
	f.flipBit(first)
	if _, err := Restore(t.Context(), conn, f.dir, first, "restored"); err == nil {
		t.Fatal("restored a damaged archive")
	}
	if n := f.query(`SELECT count(*) FROM pg_class WHERE relname = 'restored'`); n != 0 {
		t.Fatal("a failed restore left its table")
	}
}

// flipBit damages the archive of a partition in the middle of its rows.
func (f *fixture) flipBit(partition string) {
	f.Helper()
	path := filepath.Join(string(f.dir), dataName(partition))
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	data[len(data)/3] ^= 0x10
	if err := os.WriteFile(path, data, 0o600); err != nil {
		f.Fatal(err)
	}
}

func TestArchive_EachFlippedBitIsSeen(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.sealed(50)
	f.turn(f.config())
	for _, name := range []string{dataName(first), manifestName(first)} {
		path := filepath.Join(string(f.dir), name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			bad := []byte(string(good))
			at := rand.IntN(len(bad))
			bad[at] ^= 1 << rand.IntN(8)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			man, err := Verify(t.Context(), f.dir, first)
			if err == nil && name == dataName(first) {
				t.Errorf("a bit of byte %d of %s flipped unseen", at, name)
			}
			if err == nil && man.SHA256 != f.find(first).SHA256 {
				t.Errorf("a bit of byte %d of %s passes as another archive", at, name)
			}
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDrop_FlippedBitKeepsTheTableAndIsHealed_P2: the last look at the archive comes before the drop.
func TestDrop_FlippedBitKeepsTheTableAndIsHealed_P2(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.sealed(50)
	cfg := f.config()
	f.turn(cfg)
	f.flipBit(first)
	f.clock.forward(cfg.RetainSent + step)
	cfg.Registry = prometheus.NewRegistry()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Once(t.Context()); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Fatalf("dropping with a damaged archive: %v, want it refused and said", err)
	}
	if got := metric(t, m.metrics.damaged); got != 1 {
		t.Errorf("partitions_archives_damaged_total = %v, want 1", got)
	}
	if p := f.find(first); p.Place != History || p.Phase != Sealed || p.LastError == "" {
		t.Fatalf("%s is %s %s, want the table kept, to be archived again", first, p.Place, p.Phase)
	}
	f.turn(cfg)
	if _, err := Verify(t.Context(), f.dir, first); err != nil || f.query(`SELECT count(*) FROM partition_ledger WHERE name = $1 AND phase = 'dropped'`, first) != 1 {
		t.Fatalf("the next turn: %v, want the archive made anew and the table dropped", err)
	}
}

// brokenStore fails as a disk does that is full after some bytes, or gone.
type brokenStore struct {
	Store
	room int
	gone bool
}

func (s *brokenStore) Create(ctx context.Context, name string) (Upload, error) {
	if s.gone {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EROFS}
	}
	upload, err := s.Store.Create(ctx, name)
	return &fullUpload{upload, s}, err
}

type fullUpload struct {
	Upload
	store *brokenStore
}

func (u *fullUpload) Write(p []byte) (int, error) {
	n, err := u.Upload.Write(p[:min(len(p), u.store.room)])
	u.store.room -= n
	if err == nil && n < len(p) {
		err = syscall.ENOSPC
	}
	return n, err
}

// TestArchive_FailureKeepsTheTableAlarmsAndRecovers_P2 runs out of space, meets a read-only and a missing directory, and
// a wrong file in the place of the directory; each time the table stays although it is due, and the numbers say so.
func TestArchive_FailureKeepsTheTableAlarmsAndRecovers_P2(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.sealed(200)
	cfg := f.config()
	f.clock.forward(cfg.RetainSent + step)
	stores := map[string]Store{
		"full":      &brokenStore{Store: f.dir, room: 1000},
		"read-only": &brokenStore{Store: f.dir, gone: true},
		"missing":   Dir(filepath.Join(t.TempDir(), "gone")),
		"a file":    Dir(os.Args[0]),
	}
	attempts := 0
	for name, store := range stores {
		cfg.Store, cfg.Registry = store, prometheus.NewRegistry()
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Once(t.Context()); err == nil {
			t.Fatalf("%s: no error", name)
		}
		attempts++
		p := f.find(first)
		if p.Phase != Sealed || p.Place != History || p.Attempts != attempts || p.LastError == "" || p.NextAttemptAt.IsZero() {
			t.Errorf("%s: %+v, want it kept, with %d attempts and a reason", name, p, attempts)
		}
		m2, _ := New(f.config())
		if failing := observed(t, f, m2); failing < 1 {
			t.Errorf("%s: partitions_archive_failing = %v, want it to alarm", name, failing)
		}
		f.clock.forward(step) // past the pause
	}
	cfg.Store = f.dir
	f.turn(cfg)
	f.checkFiles()
	if f.query(`SELECT count(*) FROM partition_ledger WHERE name = $1 AND phase = 'dropped' AND archive IS NOT NULL`, first) != 1 {
		t.Fatal("with room again it is archived and dropped")
	}
}

// observed also wants the pile to be seen. It returns what partitions_archive_failing of a maintainer that only looks is.
func observed(t *testing.T, f *fixture, m *Manager) float64 {
	t.Helper()
	m.conn = f.conn
	if _, _, err := m.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if metric(t, m.metrics.overdue) < 1 {
		t.Error("partitions_overdue = 0 while a table is kept beyond its time")
	}
	return metric(t, m.metrics.archiveFailing)
}

func TestManifest_IsAWrittenContract(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.sealed(3)
	f.turn(f.config())
	data, err := os.ReadFile(filepath.Join(string(f.dir), manifestName(first)))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"format", "partition", "parent", "from", "to", "rows", "bytes", "min_position", "max_position", "schema_version", "sha256", "content_sha256", "columns", "archived_at"} {
		if _, ok := got[key]; !ok {
			t.Errorf("the manifest has no %s: %s", key, data)
		}
	}
}

func TestVerify_NoArchiveIsErrNotExist(t *testing.T) {
	t.Parallel()
	if _, err := Verify(t.Context(), Dir(t.TempDir()), "outbox_p20260301_1000"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want fs.ErrNotExist", err)
	}
}

func TestDir_RefusesNamesThatLeaveIt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../x", "a/b", ".hidden", ""} {
		if _, err := Dir(t.TempDir()).Create(t.Context(), name); err == nil {
			t.Errorf("created %q", name)
		}
	}
}
