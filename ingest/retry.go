package ingest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// backoff doubles from firstBackoff to lastBackoff, with jitter so that ingesters do not return together.
func backoff(try int) time.Duration {
	d := lastBackoff
	if try < 6 {
		d = min(firstBackoff<<try, lastBackoff)
	}
	return d/2 + rand.N(d/2)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// missingPartition: PostgreSQL found no partition for a row. It shares its SQLSTATE with check constraints, which name
// themselves.
func missingPartition(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23514" && pg.ConstraintName == ""
}

// movedRow: a row is not the version that the batch was decided on. The guard of updateStreams divides by zero; reading
// again cures it.
func movedRow(err error) bool { return sqlState(err) == "22012" }

// refusedData: the database refuses what a report contains; trying the same again changes nothing.
func refusedData(err error) bool {
	code := sqlState(err)
	return !movedRow(err) && (strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || strings.HasPrefix(code, "54"))
}

// retryReason is a small set of words for the metric.
func retryReason(err error) string {
	code := sqlState(err)
	var network net.Error
	switch {
	case movedRow(err):
		return "moved"
	case code == "40001" || code == "40P01":
		return "serialization"
	case code == "55P03" || code == "57014" || code == "25P03":
		return "timeout"
	case strings.HasPrefix(code, "53"):
		return "resources"
	case strings.HasPrefix(code, "57P") || strings.HasPrefix(code, "08"):
		return "connection"
	case code != "":
		return "other"
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return "connection"
	}
	return "connection"
}
