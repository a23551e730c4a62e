package outbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hubstate/hubstate/internal/mutant"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// bucketWrite is one change of one bucket's row. The database applies it only while owner and term are still ours (O3).
type bucketWrite struct {
	bucket  int16
	term    int64
	advance *advance
	park    *parking
	failure *failureNote
	halt    string
	release bool
	held    *heldWrite
	plan    bool // Backlog latest: supersede all but the newest row of each stream
}

// parking moves rows to outbox_dead and the cursor past them, in one transaction (O4, O5).
type parking struct {
	positions []int64
	last      row
	published int64 // rows up to last that are on the topic
	state     string
	attempts  int
	code      string
	why       string
	skip      bool // record the sequences in outbox_skipped as dead
	parks     bool // later rows of the key are parked behind it
}

// failureNote is what `relay status` shows of a bucket that does not get on.
type failureNote struct {
	rowAttempts    int
	outageAttempts int
	code, why      string
	wait           time.Duration
}

// writeResult tells the engine what became of its writes. A bucket in lost belongs to another term now.
type writeResult struct {
	writes []bucketWrite
	lost   map[int16]bool
	parked map[int16][]parkedRow
	plans  map[int16]*plan
	freed  map[int16]string // an aggregate of the bucket behind which nothing is parked any more
	err    error
}

type parkedRow struct {
	key      streamKey
	sequence int64
}

// cursorWriter writes what the engine decided, one request at a time, on a session of its own.
type cursorWriter struct {
	instance string
	link     link
	plans    link // plans look at the whole backlog: they may take longer than any other write
	in       <-chan []bucketWrite
	out      chan<- writeResult
}

func (w *cursorWriter) run(ctx context.Context) error {
	defer w.link.close()
	defer w.plans.close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case writes := <-w.in:
			res := w.write(ctx, writes)
			select {
			case w.out <- res:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func (w *cursorWriter) write(ctx context.Context, writes []bucketWrite) writeResult {
	res := writeResult{writes: writes, lost: make(map[int16]bool), parked: make(map[int16][]parkedRow), plans: make(map[int16]*plan), freed: make(map[int16]string)}
	res.err = w.link.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := w.advanceAll(ctx, conn, &res); err != nil {
			return err
		}
		for i := range writes {
			if err := w.one(ctx, conn, &writes[i], &res); err != nil {
				return err
			}
		}
		return nil
	})
	if res.err == nil {
		res.err = w.makePlans(ctx, &res)
	}
	return res
}

// advanceAll writes all cursors in one statement and, in the same transaction, forgets the skipped ranges that the
// events behind these cursors carried.
func (w *cursorWriter) advanceAll(ctx context.Context, conn *pgx.Conn, res *writeResult) error {
	var a advanceArgs
	for i := range res.writes {
		if bw := &res.writes[i]; bw.advance != nil {
			a.add(bw)
		}
	}
	if len(a.buckets) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	written := make(map[int16]bool)
	b.Queue(advanceStatement(), a.buckets, a.terms, a.cursors, a.ids, a.rows, w.instance).Query(func(rows pgx.Rows) error {
		var bucket int16
		_, err := pgx.ForEachRow(rows, []any{&bucket}, func() error { written[bucket] = true; return nil })
		return err
	})
	if len(a.skipBuckets) > 0 {
		b.Queue(clearSkipped, a.skipBuckets, a.skipKeys, a.skipStreams, a.skipEpochs, a.skipBelow, a.skipTerms, w.instance)
	}
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("advance cursors: %w", err)
	}
	for _, bucket := range a.buckets {
		if mutant.On(MutantNoTermCheck) {
			break
		}
		if !written[bucket] {
			res.lost[bucket] = true
		}
	}
	return nil
}

// advanceStatement is advanceCursors; as a mutant, without the check of owner and term.
func advanceStatement() string {
	if mutant.On(MutantNoTermCheck) {
		return strings.Replace(advanceCursors, "AND b.owner = $6 AND b.term = w.term", "AND ($6::text <> '')", 1)
	}
	return advanceCursors
}

type advanceArgs struct {
	buckets              []int16
	terms, cursors, rows []int64
	ids                  []pgtype.UUID

	skipBuckets           []int16
	skipKeys, skipStreams []string
	skipEpochs, skipBelow []int64
	skipTerms             []int64
}

func (a *advanceArgs) add(bw *bucketWrite) {
	a.buckets = append(a.buckets, bw.bucket)
	a.terms = append(a.terms, bw.term)
	a.cursors = append(a.cursors, bw.advance.last.position)
	a.rows = append(a.rows, bw.advance.rows)
	a.ids = append(a.ids, pgtype.UUID{Bytes: bw.advance.last.id, Valid: true})
	for _, c := range bw.advance.carried {
		a.skipBuckets = append(a.skipBuckets, bw.bucket)
		a.skipKeys = append(a.skipKeys, c.stream.aggregate)
		a.skipStreams = append(a.skipStreams, c.stream.stream)
		a.skipEpochs = append(a.skipEpochs, c.stream.epoch)
		a.skipBelow = append(a.skipBelow, c.below)
		a.skipTerms = append(a.skipTerms, bw.term)
	}
}

// one applies the rarer writes.
func (w *cursorWriter) one(ctx context.Context, conn *pgx.Conn, bw *bucketWrite, res *writeResult) error {
	var tag pgconn.CommandTag
	var err error
	switch {
	case bw.park != nil:
		return w.parkRows(ctx, conn, bw, res)
	case bw.held != nil:
		return w.writeHeld(ctx, conn, bw, res)
	case bw.halt != "":
		tag, err = conn.Exec(ctx, haltBucket, bw.bucket, w.instance, bw.term, bw.halt)
	case bw.release:
		_, err = conn.Exec(ctx, releaseBucket, bw.bucket, w.instance, bw.term)
		return wrap("release bucket", err)
	case bw.failure != nil:
		f := bw.failure
		tag, err = conn.Exec(ctx, recordFailure, bw.bucket, w.instance, bw.term, f.rowAttempts, f.outageAttempts, f.code, f.why, f.wait)
	default:
		return nil
	}
	if err == nil && tag.RowsAffected() == 0 {
		res.lost[bw.bucket] = true
	}
	return wrap("write bucket", err)
}

// parkRows moves rows to outbox_dead. The cursor is moved first: zero rows mean a stale term, and then nothing happens.
func (w *cursorWriter) parkRows(ctx context.Context, conn *pgx.Conn, bw *bucketWrite, res *writeResult) error {
	p := bw.park
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, moveCursor, bw.bucket, w.instance, bw.term, p.last.position, pgtype.UUID{Bytes: p.last.id, Valid: true}, p.published)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			res.lost[bw.bucket] = true
			return nil
		}
		if _, err := tx.Exec(ctx, insertDead, bw.bucket, p.positions, p.state, p.attempts, p.code, p.why, p.parks); err != nil {
			return err
		}
		if p.skip {
			if _, err := tx.Exec(ctx, insertSkipped, bw.bucket, p.positions, SkippedDead); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, parkedKeys, bw.bucket, p.positions)
		if err != nil {
			return err
		}
		res.parked[bw.bucket], err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (parkedRow, error) {
			var k parkedRow
			err := r.Scan(&k.key.aggregate, &k.key.stream, &k.key.epoch, &k.sequence)
			return k, err
		})
		return err
	})
	return wrap("park rows", err)
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", op, err)
}
