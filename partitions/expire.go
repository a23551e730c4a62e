package partitions

import (
	"context"
	"fmt"
)

// expireBatch bounds one transaction of deletes by age, so that it holds its locks for milliseconds.
const expireBatch = 5000

// expire deletes rows of a subject older than a time. The database function retain_rows knows the subject and what of it
// stays whatever its age.
func (m *Manager) expire(ctx context.Context, a Action) error {
	for {
		var deleted int64
		if err := m.conn.QueryRow(ctx, expireRows, a.Subject, a.Before, expireBatch).Scan(&deleted); err != nil {
			return fmt.Errorf("delete %s before %s: %w", a.Subject, stamp(a.Before), err)
		}
		m.metrics.expiredRows.WithLabelValues(a.Subject).Add(float64(deleted))
		m.turn.expired = true
		m.cfg.failpoint("expire")
		if deleted < expireBatch {
			return nil
		}
	}
}
