package partitions

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Restore loads a partition's archive into a new table of schema public, for inspection: it is not attached to anything
// and no relay reads it. The archive is verified first; on any difference, and when the table exists, nothing
// is left behind. readers are roles that may read the table. It returns the number of rows.
func Restore(ctx context.Context, conn *pgx.Conn, store Store, partition, table string, readers ...string) (int64, error) {
	if !identifier.MatchString(table) {
		return 0, fmt.Errorf("table %q: must match %s", table, identifier)
	}
	man, err := Verify(ctx, store, partition)
	if err != nil {
		return 0, fmt.Errorf("restore %s: %w", partition, err)
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := makeRestored(ctx, tx, man, table, readers); err != nil {
			return err
		}
		return copyRows(ctx, tx.Conn(), store, man, table)
	})
	if err != nil {
		return 0, fmt.Errorf("restore %s into %s: %w", partition, table, err)
	}
	return man.Rows, nil
}

func makeRestored(ctx context.Context, tx pgx.Tx, man *Manifest, table string, readers []string) error {
	columns := make([]string, len(man.Columns))
	for i, c := range man.Columns {
		columns[i] = quoted(c.Name) + " " + c.Type // bind knows the type, so the text is one of ours
		if c.Required {
			columns[i] += " NOT NULL"
		}
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf("CREATE TABLE public.%s (%s)", quoted(table), strings.Join(columns, ", "))); err != nil {
		return err
	}
	for _, role := range readers {
		if _, err := tx.Exec(ctx, fmt.Sprintf("GRANT SELECT ON public.%s TO %s", quoted(table), quoted(role))); err != nil {
			return err
		}
	}
	return nil
}

// copyRows feeds the rows to COPY as they are read. The reader goroutine ends with the pipe: both ends are closed here.
func copyRows(ctx context.Context, conn *pgx.Conn, store Store, man *Manifest, table string) (err error) {
	file, err := store.Open(ctx, dataName(man.Partition))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	source, sink := io.Pipe()
	read := make(chan error, 1)
	// Waited for below through read.
	go func() {
		err := writeCopy(sink, file, man)
		read <- errors.Join(err, sink.CloseWithError(err))
	}()
	tag, err := conn.PgConn().CopyFrom(ctx, source, fmt.Sprintf(copyInto, quoted(table)))
	_ = source.Close() // unblocks the reader when COPY ended early; never fails
	if readErr := <-read; readErr != nil && !errors.Is(readErr, io.ErrClosedPipe) {
		return readErr
	}
	if err == nil && tag.RowsAffected() != man.Rows {
		return fmt.Errorf("COPY took %d rows of %d", tag.RowsAffected(), man.Rows)
	}
	return err
}

// writeCopy writes the archive as one COPY BINARY stream.
func writeCopy(w io.Writer, file File, man *Manifest) error {
	if _, err := w.Write(append([]byte("PGCOPY\n\xff\r\n\x00"), make([]byte, 8)...)); err != nil {
		return err
	}
	got, err := readRows(file, man.Columns, man.positionIndex(), func(tuple []byte) error {
		_, err := w.Write(tuple)
		return err
	})
	if err != nil {
		return err
	}
	if err := man.compare(&got); err != nil {
		return err // the stream has no end, so COPY fails and with it the transaction
	}
	return binary.Write(w, binary.BigEndian, int16(-1))
}
