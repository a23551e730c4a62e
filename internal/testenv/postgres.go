package testenv

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/schema"
	"github.com/jackc/pgx/v5"
)

// Settings are those of every database that Postgres returns.
func Settings() schema.Settings {
	return schema.Settings{Cell: "test", Buckets: 64, Topic: "device-state", TopicPartitions: 64}
}

// Postgres returns the URL of a database of its own for this test: fully migrated, with Settings, dropped when the test
// ends. The user is a superuser, so SET ROLE to each daemon's role works. Roles belong to the whole server.
func Postgres(t testing.TB) string {
	t.Helper()
	return newDatabase(t, sqlCreateFromTemplate)
}

// PostgresRaw is Postgres without any migration: an empty database.
func PostgresRaw(t testing.TB) string {
	t.Helper()
	return newDatabase(t, sqlCreateEmpty)
}

func newDatabase(t testing.TB, create string) string {
	t.Helper()
	server, err := thePostgres()
	if err != nil {
		missing(t, fmt.Errorf("PostgreSQL for tests: %w", err))
	}
	name := server.prefix + "_" + strconv.FormatInt(server.last.Add(1), 10)
	if err := server.exec(t.Context(), fmt.Sprintf(create, name, server.prefix)); err != nil {
		t.Fatalf("create test database: %v", err)
	}
	t.Cleanup(func() {
		if err := server.exec(context.WithoutCancel(t.Context()), fmt.Sprintf(sqlDrop, name)); err != nil {
			t.Errorf("drop test database: %v", err)
		}
	})
	return withDatabase(server.url, name)
}

// postgresServer is the one server of this test binary and its migrated template.
type postgresServer struct {
	url    string
	prefix string // of database names; alone it is the template
	last   atomic.Int64
	admin  chan *pgx.Conn // one connection, handed around: CREATE DATABASE from one template runs one at a time anyway
}

var thePostgres = sync.OnceValues(func() (*postgresServer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	server, err := startPostgres(ctx)
	if err != nil {
		return nil, err
	}
	return server, server.makeTemplate(ctx)
})

func startPostgres(ctx context.Context) (*postgresServer, error) {
	prefix := fmt.Sprintf("hubstate_test_%d", os.Getpid())
	if url := os.Getenv("HUBSTATE_TEST_DATABASE_URL"); url != "" {
		took("PostgreSQL", "HUBSTATE_TEST_DATABASE_URL")
		return &postgresServer{url: url, prefix: prefix}, nil
	}
	start := startLocalPostgres
	if dockerAnswers() {
		start = dockerPostgres
	}
	url, err := start(ctx)
	return &postgresServer{url: url, prefix: prefix}, err
}

func startLocalPostgres(ctx context.Context) (string, error) {
	dir, err := theEnvironment().subdir("postgres")
	if err != nil {
		return "", err
	}
	version, err := strconv.Atoi(envOr("HUBSTATE_TEST_POSTGRES_VERSION", "0"))
	if err != nil {
		return "", fmt.Errorf("HUBSTATE_TEST_POSTGRES_VERSION: %w", err)
	}
	pg, err := embedded.StartPostgres(ctx, embedded.PostgresOptions{DataDir: dir, Version: version})
	if err != nil {
		return "", err
	}
	theEnvironment().onStop(pg.Stop)
	took("PostgreSQL", fmt.Sprintf("version %d of this machine", pg.Version()))
	return pg.URL(), nil
}

func (s *postgresServer) makeTemplate(ctx context.Context) error {
	admin, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	s.admin = make(chan *pgx.Conn, 1)
	s.admin <- admin
	theEnvironment().onStop(func(ctx context.Context) error {
		err := s.exec(ctx, fmt.Sprintf(sqlDrop, s.prefix))
		_ = admin.Close(ctx)
		return err
	})
	if err := s.exec(ctx, fmt.Sprintf(sqlCreateEmpty, s.prefix, "")); err != nil {
		return fmt.Errorf("create template database: %w", err)
	}
	return schema.Migrate(ctx, withDatabase(s.url, s.prefix), Settings())
}

func (s *postgresServer) exec(ctx context.Context, sql string) error {
	admin := <-s.admin
	defer func() { s.admin <- admin }()
	_, err := admin.Exec(ctx, sql)
	return err
}

func withDatabase(server, database string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	u.Path = "/" + database
	return u.String()
}

func envOr(name, standard string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return standard
}
