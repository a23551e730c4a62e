package partitions

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// archive writes a sealed partition to the store, reads it back, and only then records it. Everything before the record
// can be done again: a file that is there already is replaced in one step.
func (m *Manager) archive(ctx context.Context, a Action) error {
	if err := m.refuseUndecided(ctx, a.Partition); err != nil {
		return err
	}
	var revision int64
	if err := m.conn.QueryRow(ctx, revisionOf, a.Partition).Scan(&revision); err != nil {
		return fmt.Errorf("read revision: %w", err)
	}
	man, err := m.describe(ctx, a)
	if err != nil {
		return err
	}
	if err := m.writeRows(ctx, man); err != nil {
		return err
	}
	m.cfg.failpoint("archive.named")
	if err := man.check(ctx, m.cfg.Store); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	m.cfg.failpoint("archive.checked")
	if err := writeManifest(ctx, m.cfg.Store, man); err != nil {
		return err
	}
	m.cfg.failpoint("archive.described")
	if err := m.recordArchive(ctx, man, revision); err != nil {
		return err
	}
	m.cfg.failpoint("archive.recorded")
	m.metrics.archivedRows.Add(float64(man.Rows))
	m.metrics.archivedBytes.Add(float64(man.Bytes))
	return nil
}

// recordArchive fails when rows were erased since revision was read: the file may still hold them.
func (m *Manager) recordArchive(ctx context.Context, man *Manifest, revision int64) error {
	tag, err := m.conn.Exec(ctx, recordArchived, man.Partition, dataName(man.Partition), man.SHA256, man.Rows, revision)
	if err != nil {
		return fmt.Errorf("record archive: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return &waitingError{"rows were erased while it was archived; it is archived again"}
	}
	return nil
}

// refuseUndecided is P2 once more before anything irreversible. After sealing it can fail only when the guard's own
// tables were changed by hand.
func (m *Manager) refuseUndecided(ctx context.Context, partition string) error {
	why, err := undrained(ctx, m.conn, m.cfg.Drained, partition)
	if err != nil {
		return err
	}
	if why != "" {
		return &waitingError{"sealed, but the guard holds it: " + why}
	}
	return nil
}

// describe begins the manifest with what is known before the rows are read.
func (m *Manager) describe(ctx context.Context, a Action) (*Manifest, error) {
	rows, err := m.conn.Query(ctx, readColumns, a.Partition)
	if err != nil {
		return nil, fmt.Errorf("read columns: %w", err)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (column, error) {
		var c column
		if err := row.Scan(&c.Name, &c.Type, &c.Required); err != nil {
			return c, err
		}
		return c, c.bind()
	})
	if err != nil {
		return nil, fmt.Errorf("read columns: %w", err)
	}
	if positionIndex(columns, m.cfg.Position) < 0 {
		return nil, fmt.Errorf("column %s: must be there, bigint and not null", m.cfg.Position)
	}
	return &Manifest{
		Format: manifestFormat, Partition: a.Partition, Parent: m.cfg.Parent, From: a.From, To: a.To,
		SchemaVersion: m.cfg.SchemaVersion, Position: m.cfg.Position, Columns: columns, ArchivedAt: m.cfg.clock(time.Now()).UTC(),
	}, nil
}

// writeRows copies the table into the store and completes the manifest. Memory is bounded by one row group.
func (m *Manager) writeRows(ctx context.Context, man *Manifest) error {
	return put(ctx, m.cfg.Store, dataName(man.Partition), func(w io.Writer) error {
		sum := sha256.New()
		file := &counter{w: io.MultiWriter(w, sum)}
		rows := newRowWriter(file, man.Parent, man.Columns, man.positionIndex())
		if err := m.readTable(ctx, man, rows.add); err != nil {
			return err
		}
		m.cfg.failpoint("archive.writing")
		if err := rows.close(); err != nil {
			return err
		}
		m.cfg.failpoint("archive.written")
		man.Rows, man.MinPosition, man.MaxPosition = rows.rows, rows.min, rows.max
		man.Bytes, man.SHA256, man.ContentSHA256 = file.n, fmt.Sprintf("%x", sum.Sum(nil)), rows.digest()
		return nil
	})
}

// readTable calls each with the raw binary values of every row, in physical order.
func (m *Manager) readTable(ctx context.Context, man *Manifest, each func(raws [][]byte) error) error {
	names := make([]string, len(man.Columns))
	for i, c := range man.Columns {
		names[i] = quoted(c.Name)
	}
	sql := fmt.Sprintf(readTable, strings.Join(names, ", "), quoted(man.Partition))
	result := m.conn.PgConn().ExecParams(ctx, sql, nil, nil, nil, []int16{1})
	var err error
	for err == nil && result.NextRow() {
		err = each(result.Values())
	}
	// After an error of ours the rest of the rows is read and thrown away: the session, and with it the lock, is kept.
	_, closeErr := result.Close()
	return errors.Join(err, closeErr)
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// drop drops a table that was kept long enough. With a store its archive is verified again first; a damaged one sends
// the partition back to be archived anew, while there is still a table to archive.
func (m *Manager) drop(ctx context.Context, a Action) error {
	if err := m.verifyBeforeDrop(ctx, a.Partition); err != nil {
		return err
	}
	m.cfg.failpoint("drop.verified")
	if err := m.detach(ctx, a.Partition, m.cfg.History); err != nil {
		return err
	}
	m.cfg.failpoint("drop.detached")
	return m.unblocked(ctx, "drop "+a.Partition, []string{a.Partition}, func() error {
		return m.locked(ctx, "drop", func(tx pgx.Tx) error { return m.dropIn(ctx, tx, a.Partition) })
	})
}

func (m *Manager) dropIn(ctx context.Context, tx pgx.Tx, partition string) error {
	drained, why, err := m.cfg.Drained(ctx, tx, partition)
	if err != nil {
		return err
	}
	if !drained {
		return &waitingError{"due to be dropped, but the guard holds it: " + why}
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(ddlDrop, quoted(partition))); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, recordDropped, partition, m.cfg.Store != nil)
	if err == nil && tag.RowsAffected() == 0 {
		return &waitingError{"rows were erased just now; it is archived again first"}
	}
	return err
}

func (m *Manager) verifyBeforeDrop(ctx context.Context, partition string) error {
	if m.cfg.Store == nil {
		return nil
	}
	var recorded *string
	if err := m.conn.QueryRow(ctx, archiveSHA, partition).Scan(&recorded); err != nil {
		return fmt.Errorf("read the recorded archive: %w", err)
	}
	man, err := Verify(ctx, m.cfg.Store, partition)
	if err == nil && (recorded == nil || *recorded != man.SHA256) {
		err = errors.New("its manifest has another sha256 than the ledger")
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	m.metrics.damaged.Inc()
	if _, recordErr := m.conn.Exec(ctx, recordDamaged, partition, err.Error()); recordErr != nil {
		return errors.Join(err, recordErr)
	}
	return fmt.Errorf("not dropped, to be archived again: %w", err)
}
