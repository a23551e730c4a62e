package partitions

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lockTries is how often a turn tries a DDL that finds its lock taken. A try waits Config.LockTimeout and then stands
// back, so that what queued up behind it (a writer's ensure_partition) goes first.
const lockTries = 3

// blockedError says that a step waits for a lock, and for whom. Nothing was changed that the next turn does not see.
type blockedError struct {
	doing string
	by    []string
	err   error
}

func (e *blockedError) Error() string {
	by := "a lock that is free again"
	if len(e.by) > 0 {
		by = strings.Join(e.by, ", ")
	}
	return fmt.Sprintf("%s: blocked by %s", e.doing, by)
}

func (e *blockedError) Unwrap() error { return e.err }

// waitingError says that a step waits for something other than a lock.
type waitingError struct{ why string }

func (e *waitingError) Error() string { return e.why }

func isLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "40P01") // lock_not_available, deadlock_detected
}

// unblocked runs do until it finds its locks free, at most lockTries times.
func (m *Manager) unblocked(ctx context.Context, doing string, tables []string, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if !isLockTimeout(err) {
			return err
		}
		m.metrics.lockTimeouts.Inc()
		if try == lockTries {
			by, blockErr := m.blockers(ctx, tables)
			return errors.Join(&blockedError{doing: doing, by: by, err: err}, blockErr)
		}
		if err := sleep(ctx, m.cfg.LockTimeout/10+rand.N(m.cfg.LockTimeout)); err != nil {
			return err
		}
	}
}

// blockers describes who holds locks on the tables or the oldest snapshots.
func (m *Manager) blockers(ctx context.Context, tables []string) ([]string, error) {
	rows, err := m.conn.Query(ctx, selectBlockers, tables)
	if err != nil {
		return nil, fmt.Errorf("look for blockers: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var pid int32
		var app, user, state string
		var since *time.Time
		if err := row.Scan(&pid, &app, &user, &state, &since); err != nil {
			return "", err
		}
		text := fmt.Sprintf("pid %d (application %q, user %s, %s", pid, app, user, or(state, "state hidden"))
		if since != nil {
			text += ", in a transaction since " + since.UTC().Format(time.RFC3339)
		}
		return text + ")", nil
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
