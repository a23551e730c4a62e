package partitions

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// seal takes an ended partition out of the parent once every row of it is decided. The order is the promise P2:
//
//	writer A   locks its bucket, reads the floor, creates a row in P, and dawdles
//	us         commit floor = end of P: who reads the floor from now on creates rows after P
//	us         take and release each bucket lock: A has ended, its row is visible or gone
//	us         ask the guard: every row of P is at or below its bucket's cursor, and no other can come
//	us         DETACH CONCURRENTLY
//
// Asking first and detaching then loses A's row: DETACH waits for A, and takes its row away unread.
func (m *Manager) seal(ctx context.Context, a Action) error {
	parent, _, err := m.parentOf(ctx, a.Partition)
	if err != nil {
		return err
	}
	if parent == m.cfg.Parent {
		if err := m.takeOut(ctx, a); err != nil {
			return err
		}
	}
	return m.shelve(ctx, a)
}

func (m *Manager) takeOut(ctx context.Context, a Action) error {
	if err := m.closeRange(ctx, a); err != nil {
		return err
	}
	err := m.unblocked(ctx, "wait for the writers of "+a.Partition, []string{m.cfg.Parent}, func() error {
		return m.cfg.Barrier(ctx, m.conn)
	})
	if err != nil {
		return err
	}
	m.cfg.failpoint("seal.barrier")
	why, err := undrained(ctx, m.conn, m.cfg.Drained, a.Partition)
	if err != nil {
		return err
	}
	if why != "" {
		return &waitingError{why}
	}
	m.cfg.failpoint("seal.guard")
	if err := m.detach(ctx, a.Partition, m.cfg.Parent); err != nil {
		return err
	}
	m.cfg.failpoint("seal.detached")
	return nil
}

// closeRange raises the floor to the end of the partition. Under the partition lock: an ensure_partition that read the
// old floor has committed, and what it attached is seen by the next plan; a later one reads the new floor.
func (m *Manager) closeRange(ctx context.Context, a Action) error {
	return m.locked(ctx, "seal.floor", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, raiseFloor, m.cfg.Parent, a.To); err != nil {
			return fmt.Errorf("raise the floor: %w", err)
		}
		_, err := tx.Exec(ctx, recordSealing, a.Partition)
		return err
	})
}

// shelve records a table that stands alone as sealed and makes it part of the history. Its rows are asked for once more:
// a table that was detached by another hand than ours goes back.
func (m *Manager) shelve(ctx context.Context, a Action) error {
	why, err := undrained(ctx, m.conn, m.cfg.Drained, a.Partition)
	if err != nil {
		return err
	}
	if why != "" {
		m.cfg.Log.Error("a detached partition holds undecided rows and is attached again", "partition", a.Partition, "reason", why)
		return m.attach(ctx, a)
	}
	return m.unblocked(ctx, "move "+a.Partition+" to "+m.cfg.History, []string{m.cfg.History, a.Partition}, func() error {
		err := pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error { return m.shelveIn(ctx, tx, a) })
		if err == nil {
			m.cfg.failpoint("seal.record.committed")
		}
		return err
	})
}

// shelveIn is the transaction of shelve. ATTACH builds the history's indexes on the table under a lock that readers of
// the history do not feel, and scans nothing: the table still has the CHECK of its range.
func (m *Manager) shelveIn(ctx context.Context, tx pgx.Tx, a Action) error {
	if _, err := tx.Exec(ctx, sealedHook, m.cfg.Parent, a.Partition); err != nil {
		return fmt.Errorf("partition_sealed: %w", err)
	}
	var rows, bytes int64
	if err := tx.QueryRow(ctx, fmt.Sprintf(countRows, quoted(a.Partition))).Scan(&rows); err != nil {
		return fmt.Errorf("count rows: %w", err)
	}
	sql := fmt.Sprintf(ddlAttach, quoted(m.cfg.History), quoted(a.Partition), instant(a.From), instant(a.To))
	if _, err := tx.Exec(ctx, sql); err != nil {
		return fmt.Errorf("attach to %s: %w", m.cfg.History, err)
	}
	if err := tx.QueryRow(ctx, tableSize, a.Partition).Scan(&bytes); err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	if _, err := tx.Exec(ctx, recordSealed, a.Partition, rows, bytes); err != nil {
		return err
	}
	m.cfg.failpoint("seal.record")
	return nil
}
