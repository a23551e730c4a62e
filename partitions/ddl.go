package partitions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The DDL that is put together at run time. Names are quoted; all tables are in schema public.
const (
	ddlDetach   = "ALTER TABLE public.%s DETACH PARTITION public.%s CONCURRENTLY" // SHARE UPDATE EXCLUSIVE; waits for users of the parent
	ddlFinalize = "ALTER TABLE public.%s DETACH PARTITION public.%s FINALIZE"     // the same; waits for older snapshots
	ddlAttach   = "ALTER TABLE public.%s ATTACH PARTITION public.%s FOR VALUES FROM ('%s') TO ('%s')"
	ddlDrop     = "DROP TABLE public.%s" // of a table that stands alone
)

// instant is a time as a literal that means the same in every session.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// create makes the stand-alone table of a runway range.
func (m *Manager) create(ctx context.Context, a Action) error {
	return m.locked(ctx, "create", func(tx pgx.Tx) error {
		var name string
		err := tx.QueryRow(ctx, createTable, m.cfg.Parent, a.From, a.To).Scan(&name)
		var pg *pgconn.PgError
		switch {
		case errors.As(err, &pg) && pg.Code == "42P17": // prepare_partition: the range is taken
			return &waitingError{"a writer made a partition there just now"}
		case err == nil && name != a.Partition:
			return fmt.Errorf("the database made %s", name)
		}
		return err
	})
}

// attach makes a table part of the parent. The table is invisible to everybody before, the parent stays readable and
// writable meanwhile.
func (m *Manager) attach(ctx context.Context, a Action) error {
	return m.unblocked(ctx, "attach "+a.Partition, []string{m.cfg.Parent, a.Partition}, func() error {
		return m.locked(ctx, "attach", func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, attachTable, m.cfg.Parent, a.Partition)
			return err
		})
	})
}

// discard drops a runway table. A writer may have attached it since the plan was made: then it is no longer ahead, and
// stays. One that holds rows was never filled by us and stays too.
func (m *Manager) discard(ctx context.Context, a Action) error {
	return m.unblocked(ctx, "discard "+a.Partition, []string{a.Partition}, func() error {
		return m.locked(ctx, "discard", func(tx pgx.Tx) error { return dropAhead(ctx, tx, a.Partition) })
	})
}

func dropAhead(ctx context.Context, tx pgx.Tx, name string) error {
	var ahead bool
	if err := tx.QueryRow(ctx, lockAhead, name).Scan(&ahead); errors.Is(err, pgx.ErrNoRows) {
		return &waitingError{"a writer attached it just now"}
	} else if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(lockTable, quoted(name))); err != nil {
		return err
	}
	var filled bool
	if err := tx.QueryRow(ctx, fmt.Sprintf(hasRows, quoted(name))).Scan(&filled); err != nil {
		return err
	}
	if filled {
		return &waitingError{"it was never attached but holds rows; move them, or the table, away"}
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(ddlDrop, quoted(name))); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, deleteAhead, name)
	return err
}

func (m *Manager) adopt(ctx context.Context, a Action) error {
	return m.locked(ctx, "adopt", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, recordAdopted, a.Partition, m.cfg.Parent, a.From, a.To)
		return err
	})
}

// forget makes the ledger agree with a table that somebody dropped.
func (m *Manager) forget(ctx context.Context, a Action) error {
	return m.locked(ctx, "forget", func(tx pgx.Tx) error {
		gone, err := tx.Exec(ctx, deleteAhead, a.Partition)
		if err != nil || gone.RowsAffected() > 0 {
			return err
		}
		m.cfg.Log.Error("a partition is gone that the maintainer did not drop", "partition", a.Partition, "reason", a.Reason)
		_, err = tx.Exec(ctx, recordGone, a.Partition, "dropped by hand: "+a.Reason)
		return err
	})
}

// parentOf returns the table that name is part of, "" when it stands alone, and whether its detach is pending.
func (m *Manager) parentOf(ctx context.Context, name string) (parent string, pending bool, err error) {
	err = m.conn.QueryRow(ctx, detachState, name).Scan(&parent, &pending)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("look where %s is attached: %w", name, err)
	}
	return parent, pending, nil
}

// detach takes a table out of parent without a lock that readers or writers of the parent feel. It is idempotent: what
// an earlier try, or an earlier maintainer, began is finalized.
func (m *Manager) detach(ctx context.Context, name, parent string) error {
	return m.unblocked(ctx, "detach "+name+" from "+parent, []string{parent, name}, func() error {
		have, pending, err := m.parentOf(ctx, name)
		switch {
		case err != nil || have == "":
			return err
		case have != parent:
			return fmt.Errorf("%s is part of %s, not of %s", name, have, parent)
		case pending:
			_, err = m.conn.Exec(ctx, fmt.Sprintf(ddlFinalize, quoted(parent), quoted(name)))
		default:
			_, err = m.conn.Exec(ctx, fmt.Sprintf(ddlDetach, quoted(parent), quoted(name)))
		}
		return err
	})
}

// finalize ends a detach that was interrupted, from the parent or from the history.
func (m *Manager) finalize(ctx context.Context, a Action) error {
	parent, pending, err := m.parentOf(ctx, a.Partition)
	if err != nil || !pending {
		return err
	}
	if err := m.detach(ctx, a.Partition, parent); err != nil {
		return err
	}
	m.cfg.failpoint("finalize")
	return nil
}
