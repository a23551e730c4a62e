package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// OpenPool opens a pool and checks that it works. Every connection reports application_name = name, has settings
// applied and then runs as role (SET ROLE), so an over-privileged URL still has only the rights of the part that uses
// it. role may be empty. The error hides the password and says what to GRANT when the login is not a member of role.
func OpenPool(ctx context.Context, url, role, name string, settings map[string]string, maxConns int32) (*pgxpool.Pool, error) {
	pool, err := NewPool(ctx, url, role, name, settings, maxConns)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to %s: %w", Mask(url), err)
	}
	return pool, nil
}

// NewPool is OpenPool without a first connection: for a daemon that must start, and say so, while its database is away.
func NewPool(ctx context.Context, url, role, name string, settings map[string]string, maxConns int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database_url = %q: %w", Mask(url), err)
	}
	cfg.MaxConns = maxConns
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return assume(ctx, conn, role, settings) }
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open pool %s: %w", Mask(url), err)
	}
	return pool, nil
}

// OpenConn opens one connection with the same promises as OpenPool.
func OpenConn(ctx context.Context, url, role, name string, settings map[string]string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database_url = %q: %w", Mask(url), err)
	}
	cfg.RuntimeParams["application_name"] = name
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", Mask(url), err)
	}
	if err := assume(ctx, conn, role, settings); err != nil {
		return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return conn, nil
}

// assume applies the settings first: some need rights that the role does not have.
func assume(ctx context.Context, conn *pgx.Conn, role string, settings map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if _, err := conn.Exec(ctx, setSetting, key, settings[key]); err != nil {
			return fmt.Errorf("set %s = %s: %w", key, settings[key], err)
		}
	}
	if role == "" {
		return nil
	}
	quoted := pgx.Identifier{role}.Sanitize()
	if _, err := conn.Exec(ctx, setRole+quoted); err != nil {
		return &roleError{role: role, user: conn.Config().User, err: err}
	}
	return nil
}

type roleError struct {
	role, user string
	err        error
}

func (e *roleError) Unwrap() error { return e.err }

func (e *roleError) Error() string {
	text := fmt.Sprintf("become role %s as user %s: %v", e.role, e.user, e.err)
	var pg *pgconn.PgError
	if !errors.As(e.err, &pg) {
		return text
	}
	switch pg.Code {
	case "42501": // insufficient_privilege
		return text + fmt.Sprintf("; let a superuser run: GRANT %s TO %s", pgx.Identifier{e.role}.Sanitize(), pgx.Identifier{e.user}.Sanitize())
	case "22023": // the role does not exist
		return text + "; run `relay migrate` first, it creates the roles"
	}
	return text
}
