package ops_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestOpenPool_EveryConnectionRunsWithTheRightsOfItsRole(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	settings := map[string]string{"synchronous_commit": "on", "statement_timeout": "7s"}
	pool, err := ops.OpenPool(t.Context(), url, "hubstate_reader", "monitor test", settings, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var user, name, timeout string
	const ask = `SELECT current_user, current_setting('application_name'), current_setting('statement_timeout')`
	if err := pool.QueryRow(t.Context(), ask).Scan(&user, &name, &timeout); err != nil {
		t.Fatal(err)
	}
	if user != "hubstate_reader" || name != "monitor test" || timeout != "7s" {
		t.Fatalf("%s %s %s", user, name, timeout)
	}
	if _, err := pool.Exec(t.Context(), `DELETE FROM device_state`); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Fatalf("a reader deleted: %v", err)
	}
}

func TestOpenConn_TellsWhatToGrantWhenTheLoginMayNotBecomeTheRole(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	admin, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context()))
	// A role belongs to the whole cluster, so its name is this test's own and it is dropped at the end.
	login := "ops_test_" + strings.ToLower(admin.Config().Database)
	if _, err := admin.Exec(t.Context(), `CREATE ROLE `+pgx.Identifier{login}.Sanitize()+` LOGIN PASSWORD 'geheim'`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dropRole(t, url, login) })

	_, err = ops.OpenConn(t.Context(), asLogin(t, url, login), "hubstate_ingest", "x", nil)
	if err == nil || !strings.Contains(err.Error(), `GRANT "hubstate_ingest" TO`) {
		t.Fatalf("no hint: %v", err)
	}
	_, err = ops.OpenPool(t.Context(), asLogin(t, url, login), "no_such_role", "x", nil, 1)
	if err == nil || !strings.Contains(err.Error(), "relay migrate") || strings.Contains(err.Error(), "geheim") {
		t.Fatalf("no hint, or a secret: %v", err)
	}
}

func asLogin(t *testing.T, url, login string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return "user=" + login + " password=geheim host=" + cfg.Host + " port=" + fmt.Sprint(cfg.Port) + " dbname=" + cfg.Database
}

func dropRole(t *testing.T, url, login string) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Errorf("connect: %v", err)
		return
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `DROP ROLE `+pgx.Identifier{login}.Sanitize()); err != nil {
		t.Errorf("drop role: %v", err)
	}
}

func TestOpenConn_HidesThePasswordOfAnAddressThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:geheim@127.0.0.1:1/db?connect_timeout=1", "postgres://u:geheim@h:port/db"} {
		if _, err := ops.OpenConn(t.Context(), url, "", "x", nil); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%v", err)
		}
	}
}
