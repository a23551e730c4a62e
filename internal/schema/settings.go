package schema

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Settings is what a cell promised its topic. All daemons of a cell agree on it through the database.
type Settings struct {
	Cell            string // name of this database among all that write to the topic; [A-Za-z0-9._-]{1,64}; default "main"
	Buckets         int    // outbox buckets, 1..4096; default 64
	Topic           string // Kafka topic; default "device-state"
	TopicPartitions int    // partitions of Topic; divides Buckets; default 64
}

var cellPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// DefaultSettings returns the settings of an installation that chose nothing.
func DefaultSettings() Settings {
	return Settings{Cell: "main", Buckets: 64, Topic: "device-state", TopicPartitions: 64}
}

// Validate returns all problems joined, each naming the field and its limit.
func (s Settings) Validate() error {
	var errs []error
	if !cellPattern.MatchString(s.Cell) {
		errs = append(errs, fmt.Errorf("cell %q: must match %s", s.Cell, cellPattern))
	}
	if s.Buckets < 1 || s.Buckets > 4096 {
		errs = append(errs, fmt.Errorf("buckets %d: must be 1..4096", s.Buckets))
	}
	if s.Topic == "" {
		errs = append(errs, errors.New("topic: must not be empty"))
	}
	if s.TopicPartitions < 1 || s.TopicPartitions > 4096 {
		errs = append(errs, fmt.Errorf("topic_partitions %d: must be 1..4096", s.TopicPartitions))
	} else if s.Buckets%s.TopicPartitions != 0 {
		errs = append(errs, fmt.Errorf("topic_partitions %d: must divide buckets (%d), so that a bucket lies in one partition", s.TopicPartitions, s.Buckets))
	}
	return errors.Join(errs...)
}

func record(ctx context.Context, conn *pgx.Conn, s Settings) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertSettings, s.Cell, s.Buckets, s.Topic, s.TopicPartitions); err != nil {
			return fmt.Errorf("record settings: %w", err)
		}
		got, err := readSettings(ctx, tx)
		if err != nil {
			return err
		}
		if got != s {
			return fmt.Errorf("settings are fixed once recorded: the database has %+v, asked for %+v", got, s)
		}
		if _, err := tx.Exec(ctx, insertBuckets, s.Buckets); err != nil {
			return fmt.Errorf("make buckets: %w", err)
		}
		return nil
	})
}

// Querier is the one method that reading the settings needs; a pool, a connection and a transaction have it.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func readSettings(ctx context.Context, q Querier) (Settings, error) {
	var s Settings
	err := q.QueryRow(ctx, selectSettings).Scan(&s.Cell, &s.Buckets, &s.Topic, &s.TopicPartitions)
	if err != nil {
		return s, fmt.Errorf("read settings: %w", err)
	}
	return s, nil
}

// Check returns the recorded settings, or an error that wraps ErrNotMigrated when migrations are missing.
// A database that is newer than the binary is accepted: migrations only add (see docs/decisions).
func Check(ctx context.Context, q Querier) (Settings, error) {
	var have int64
	err := q.QueryRow(ctx, selectVersion).Scan(&have)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "42P01" {
		return Settings{}, ErrNotMigrated
	}
	if err != nil {
		return Settings{}, fmt.Errorf("read schema version: %w", err)
	}
	if want := Latest(); have < want {
		return Settings{}, fmt.Errorf("schema version %d, this binary needs %d: %w", have, want, ErrNotMigrated)
	}
	s, err := readSettings(ctx, q)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, ErrNotMigrated
	}
	return s, err
}

// Latest is the number of the newest migration in this binary.
func Latest() int64 {
	entries, err := migrations.ReadDir("migrations")
	if err != nil || len(entries) == 0 {
		return 0
	}
	var n int64
	if _, err := fmt.Sscanf(entries[len(entries)-1].Name(), "%d_", &n); err != nil {
		return 0
	}
	return n
}
