// Package schema owns the database schema of a cell: numbered forward migrations (plain SQL, applied by goose) and the
// check that every daemon makes at start. Migrations are safe under load: they wait for no lock longer than lockTimeout.
package schema

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

const lockTimeout = "5s"

// ErrNotMigrated is wrapped by Check when the database lacks migrations that this binary needs.
var ErrNotMigrated = errors.New("database is not migrated; run `relay migrate`")

// Migrate applies all pending migrations under a session lock, then records the settings of the cell and one
// outbox_bucket row per bucket. It is idempotent. Settings that differ from the recorded ones are refused: changing the
// number of buckets or of topic partitions moves devices between buckets and breaks their order (O2).
func Migrate(ctx context.Context, url string, s Settings) error {
	if err := s.Validate(); err != nil {
		return err
	}
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("parse database_url: %w", err)
	}
	cfg.RuntimeParams["lock_timeout"] = lockTimeout
	cfg.RuntimeParams["application_name"] = "hubstate-migrate"
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	if err := up(ctx, db); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect after migration: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return record(ctx, conn, s)
}

func up(ctx context.Context, db *sql.DB) error {
	p, err := provider(db)
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("apply migrations: %w", err)
	}
	return nil
}

func provider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("open embedded migrations: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, fmt.Errorf("make migration lock: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, fmt.Errorf("load migrations: %w", err)
	}
	return p, nil
}
