package testenv_test

import (
	"testing"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestPostgres_EachTestHasAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	first, second := testenv.Postgres(t), testenv.Postgres(t)
	if first == second {
		t.Fatal("two calls returned the same database")
	}
	if got := countBuckets(t, first, true); got != 0 {
		t.Fatalf("after deleting: %d buckets, want 0", got)
	}
	if got, want := countBuckets(t, second, false), testenv.Settings().Buckets; got != want {
		t.Fatalf("the neighbour's database has %d buckets, want %d", got, want)
	}
}

func countBuckets(t *testing.T, url string, empty bool) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if empty {
		if _, err := conn.Exec(t.Context(), `DELETE FROM outbox_bucket`); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM outbox_bucket`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPostgresRaw_IsEmpty(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), testenv.PostgresRaw(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var tables int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&tables); err != nil {
		t.Fatal(err)
	}
	if tables != 0 {
		t.Fatalf("%d tables in a raw database, want 0", tables)
	}
}
