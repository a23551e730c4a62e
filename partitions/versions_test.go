package partitions

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/schema"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5"
)

// TestLife_OnPostgreSQL15And18 runs a whole life on both ends of the supported range, whatever the other tests run on.
// (HUBSTATE_TEST_POSTGRES_VERSION=15 runs all of them on 15.)
func TestLife_OnPostgreSQL15And18(t *testing.T) {
	t.Parallel()
	for _, version := range []int{15, 18} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			f := setupAt(t, serverOf(t, version))
			if got := f.query(`SELECT current_setting('server_version_num')::int / 10000`); got != int64(version) {
				t.Fatalf("the server is version %d", got)
			}
			cfg := f.config()
			f.turn(cfg)
			first := f.state().Partitions[0]
			f.write(f.connect("hubstate_ingest"), f.devices(30)...)
			f.drain()
			f.exec(`UPDATE partition_spec SET floor = $1`, first.To)
			f.clock.forward(step)
			f.leaveDetachPending(first.Name) // 15 and 18 differ most in what they do with it
			f.turn(cfg)
			if p := f.find(first.Name); p.Phase != Archived || p.Place != History || *p.Rows != 30 {
				t.Fatalf("%+v, want it archived, in the history, with 30 rows", p)
			}
			f.erasePartition(f.erase(f.devices(1)[0]), first.Name)
			f.turn(cfg)
			f.clock.forward(cfg.RetainSent)
			f.turn(cfg)
			if rows, err := Restore(t.Context(), f.connect("hubstate_maintainer"), f.dir, first.Name, "restored"); err != nil || rows != 29 {
				t.Fatalf("restored %d rows of the dropped partition, %v; want all but the erased one", rows, err)
			}
		})
	}
}

// serverOf starts a server of a major version with a database that was migrated by an owner without superuser rights, as
// on a managed service.
func serverOf(t *testing.T, version int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hubstate-partitions-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { // the server runs as another user when we are root
		t.Fatal(err)
	}
	pg, err := embedded.StartPostgres(t.Context(), embedded.PostgresOptions{DataDir: filepath.Join(dir, "data"), Version: version})
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() { _ = pg.Stop(context.WithoutCancel(t.Context())) })
	admin, err := pgx.Connect(t.Context(), pg.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context()))
	for _, sql := range []string{`CREATE ROLE installer LOGIN CREATEROLE PASSWORD 'x'`, `CREATE DATABASE cell OWNER installer`} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	super := inDatabase(t, pg.URL(), "cell", nil)
	if err := schema.Migrate(t.Context(), inDatabase(t, super, "cell", url.UserPassword("installer", "x")), testenv.Settings()); err != nil {
		t.Fatal(err)
	}
	return super
}

func inDatabase(t *testing.T, server, database string, user *url.Userinfo) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + database
	if user != nil {
		u.User = user
	}
	return u.String()
}
