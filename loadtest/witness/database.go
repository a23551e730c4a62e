package witness

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/hubstate/hubstate/loadtest/ledger"
	"github.com/hubstate/hubstate/loadtest/oracle"
)

// Baseline is what the database counted before the fleet started: several fleets may use one installation in turn.
type Baseline struct {
	Classes  oracle.Classes
	Rejected int64
	Overflow int64
	Possible int64

	// Totals of all streams: a broker that comes back with an old snapshot may deliver reports of earlier fleets again.
	Late, Duplicate int64
}

// ReadBaseline reads the counts as they stand.
func ReadBaseline(ctx context.Context, url string) (b Baseline, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return b, fmt.Errorf("read baseline: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return readCounts(ctx, conn)
}

func readCounts(ctx context.Context, conn *pgx.Conn) (b Baseline, err error) {
	c := &b.Classes
	err = errors.Join(
		conn.QueryRow(ctx, sqlClasses).Scan(&c.Applied, &c.Duplicate, &c.Late, &c.Coalesced, &c.Discarded, &c.Ignored, &c.Quarantined),
		conn.QueryRow(ctx, sqlRejectCounts).Scan(&b.Rejected, &b.Overflow),
		conn.QueryRow(ctx, sqlPossibleGaps).Scan(&b.Possible),
		conn.QueryRow(ctx, sqlStreamTotals).Scan(&b.Late, &b.Duplicate),
	)
	return b, err
}

// ReadDatabase reads all that PostgreSQL holds about the ledger's devices, which all begin with prefix. Seed is shared
// with ReadTopic, so that rows and records can be compared.
func ReadDatabase(ctx context.Context, url, prefix string, book *ledger.Ledger, before Baseline, seed maphash.Seed) (oracle.Database, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return oracle.Database{}, fmt.Errorf("read database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	d := &databaseReader{conn: conn, prefix: prefix + "-", reader: newReader(book, seed)}
	for _, read := range []func(context.Context) error{d.outbox, d.states, d.gaps, d.rejects, d.dead, d.skipped, d.rest} {
		if err := read(ctx); err != nil {
			return d.db, fmt.Errorf("read database: %w", err)
		}
	}
	return d.db, d.counts(ctx, before)
}

type databaseReader struct {
	conn   *pgx.Conn
	prefix string
	*reader
	db oracle.Database
}

func (d *databaseReader) outbox(ctx context.Context) (err error) {
	d.db.Outbox, err = d.rows(ctx, sqlOutbox)
	return err
}

func (d *databaseReader) dead(ctx context.Context) (err error) {
	d.db.Dead, err = d.rows(ctx, sqlDead)
	return err
}

func (d *databaseReader) rows(ctx context.Context, query string) ([]oracle.Row, error) {
	rows, err := d.conn.Query(ctx, query, d.prefix)
	if err != nil {
		return nil, err
	}
	var all []oracle.Row
	var row oracle.Row
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&row.Position, &row.Bucket, &payload}, func() error {
		event, _, ours, err := d.event(payload)
		if err != nil {
			return fmt.Errorf("outbox position %d: %w", row.Position, err)
		}
		if ours {
			row.Event = event
			all = append(all, row)
		}
		return nil
	})
	return all, err
}

func (d *databaseReader) states(ctx context.Context) error {
	rows, err := d.conn.Query(ctx, sqlStates, d.prefix)
	if err != nil {
		return err
	}
	d.db.States = map[int]oracle.State{}
	var device, stream string
	var content []byte
	var s oracle.State
	targets := []any{&device, &stream, &s.Epoch, &s.Sequence, &s.Missed, &s.Late, &s.Duplicate, &s.Bad, &s.ReceivedAt, &content}
	_, err = pgx.ForEachRow(rows, targets, func() error {
		if i := d.book.Find(device, stream); i >= 0 {
			s.Report, s.Intact = d.state(i, content)
			d.db.States[i] = s
		}
		return nil
	})
	return err
}

func (d *databaseReader) gaps(ctx context.Context) error {
	rows, err := d.conn.Query(ctx, sqlGaps, d.prefix)
	if err != nil {
		return err
	}
	d.db.Gaps = map[int][]oracle.Range{}
	var device, stream string
	var r oracle.Range
	_, err = pgx.ForEachRow(rows, []any{&device, &stream, &r.From, &r.To}, func() error {
		if i := d.book.Find(device, stream); i >= 0 {
			d.db.Gaps[i] = append(d.db.Gaps[i], r)
		}
		return nil
	})
	return err
}

func (d *databaseReader) rejects(ctx context.Context) error {
	rows, err := d.conn.Query(ctx, sqlRejects, d.prefix)
	if err != nil {
		return err
	}
	d.db.Rejects = map[oracle.Ref]int{}
	var topic string
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&topic, &payload}, func() error {
		levels := strings.Split(topic, "/")
		if len(levels) != 5 {
			return nil
		}
		i := d.book.Find(levels[3], levels[4])
		number := ledger.NumberIn(payload)
		if i >= 0 && d.sentAs(i, number, payload) {
			d.db.Rejects[oracle.Ref{Stream: i, Report: number}]++
		}
		return nil
	})
	return err
}

// sentAs reports whether payload is, byte for byte, what the device sent: quarantine keeps evidence, not summaries.
func (d *databaseReader) sentAs(stream int, number uint32, payload []byte) bool {
	line, ok := d.book.Streams[stream].Report(number)
	if !ok {
		return false
	}
	d.scratch = d.book.AppendPayload(d.scratch[:0], stream, number, line)
	return string(d.scratch) == string(payload)
}

func (d *databaseReader) skipped(ctx context.Context) error {
	rows, err := d.conn.Query(ctx, sqlSkipped, d.prefix)
	if err != nil {
		return err
	}
	d.db.Skipped = map[int][]oracle.Skip{}
	var device, stream string
	var s oracle.Skip
	_, err = pgx.ForEachRow(rows, []any{&device, &stream, &s.Epoch, &s.From, &s.To}, func() error {
		if i := d.book.Find(device, stream); i >= 0 {
			d.db.Skipped[i] = append(d.db.Skipped[i], s)
		}
		return nil
	})
	return err
}

func (d *databaseReader) rest(ctx context.Context) error {
	if err := d.conn.QueryRow(ctx, sqlPending).Scan(&d.db.Pending); err != nil {
		return err
	}
	rows, err := d.conn.Query(ctx, sqlHalted)
	if err != nil {
		return err
	}
	d.db.Halted = map[int16]string{}
	var bucket int16
	var why string
	_, err = pgx.ForEachRow(rows, []any{&bucket, &why}, func() error {
		d.db.Halted[bucket] = why
		return nil
	})
	return err
}

func (d *databaseReader) counts(ctx context.Context, before Baseline) error {
	now, err := readCounts(ctx, d.conn)
	if err != nil {
		return fmt.Errorf("read database: %w", err)
	}
	d.db.Classes = now.Classes.Minus(before.Classes)
	d.db.Rejected = now.Rejected - before.Rejected
	d.db.Overflow = now.Overflow - before.Overflow
	d.db.Possible = now.Possible - before.Possible
	d.db.Late, d.db.Duplicate = now.Late-before.Late, now.Duplicate-before.Duplicate
	return nil
}

// Progress is how far the pipeline has come.
type Progress struct {
	Applied   int64
	Committed int64 // reports of all classes
	Published int64 // rows behind their bucket's cursor
	Pending   int64 // buckets with rows above their cursor
	WAL       int64 // bytes written since the cluster was made
}

// ReadProgress is cheap.
func ReadProgress(ctx context.Context, url string) (p Progress, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return p, fmt.Errorf("read progress: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, sqlProgress).Scan(&p.Applied, &p.Committed, &p.Published, &p.Pending, &p.WAL)
	if err != nil {
		return p, fmt.Errorf("read progress: %w", err)
	}
	return p, nil
}
