package embedded_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// needs skips a test whose server is not on this machine, and fails it in CI.
func needs(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}

func TestPostgres_CommittedRowsSurviveKillAndRestartOnTheSamePort(t *testing.T) {
	t.Parallel()
	for _, version := range []int{15, 18} {
		t.Run(map[int]string{15: "15", 18: "18"}[version], func(t *testing.T) {
			t.Parallel()
			pg := startPostgres(t, embedded.PostgresOptions{DataDir: serverDir(t), Version: version})
			exec(t, pg.URL(), `CREATE TABLE kept (n int)`, `INSERT INTO kept VALUES (1)`)
			if err := pg.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := pgx.Connect(t.Context(), pg.URL()); err == nil {
				t.Fatal("a killed server answered")
			}
			if err := pg.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := query(t, pg.URL(), `SELECT count(*)::text FROM kept`); got != "1" {
				t.Fatalf("rows after the restart: %s, want 1", got)
			}
		})
	}
}

func TestPostgres_RunsWithTheSettingsAnInstallationUses(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t, embedded.PostgresOptions{DataDir: serverDir(t), Settings: map[string]string{"work_mem": "17MB"}})
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "wal_level": "logical", "jit": "off",
		"data_checksums": "on", "work_mem": "17MB", "listen_addresses": "127.0.0.1",
	} {
		if got := query(t, pg.URL(), `SELECT current_setting('`+name+`')`); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
	if got := query(t, pg.URL(), `SELECT coalesce(string_agg(name || $$: $$ || error, $$, $$), $$none$$) FROM pg_file_settings WHERE error IS NOT NULL`); got != "none" {
		t.Errorf("settings the server refuses: %s", got)
	}
}

func TestPostgres_PausedAnswersNothingAndGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t, embedded.PostgresOptions{DataDir: serverDir(t)})
	conn, err := pgx.Connect(t.Context(), pg.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := pg.Pause(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { answered <- conn.Ping(t.Context()) }()
	select {
	case err := <-answered:
		t.Fatalf("a backend of a paused server answered (%v)", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := pg.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Fatalf("after Resume: %v", err)
	}
}

func TestPostgres_DataDirectoryHasOneUser(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	startPostgres(t, embedded.PostgresOptions{DataDir: dir})
	if _, err := embedded.StartPostgres(t.Context(), embedded.PostgresOptions{DataDir: dir}); err == nil {
		t.Fatal("two servers share a data directory")
	}
}

func TestRedis_KeepsItsDataOverKill(t *testing.T) {
	t.Parallel()
	server, err := embedded.StartRedis(t.Context(), embedded.RedisOptions{Dir: t.TempDir()})
	needs(t, err)
	stopAtEnd(t, server.Stop)
	opts, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	defer client.Close()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(server.Kill(), server.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Get(t.Context(), "k").Result(); err != nil || got != "v" {
		t.Fatalf("after the restart: %q, %v", got, err)
	}
}

func startPostgres(t *testing.T, opts embedded.PostgresOptions) *embedded.Postgres {
	t.Helper()
	pg, err := embedded.StartPostgres(t.Context(), opts)
	needs(t, err)
	stopAtEnd(t, pg.Stop)
	return pg
}

func stopAtEnd(t *testing.T, stop func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		if err := stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

// serverDir is a directory that the user PostgreSQL runs as can reach.
func serverDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hubstate-embedded-") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "server")
}

func exec(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func query(t *testing.T, url, sql string) (value string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}
