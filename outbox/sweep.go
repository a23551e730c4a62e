package outbox

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// sweepRequest asks for the rows behind the read positions of some buckets.
type sweepRequest struct {
	buckets []int16
	after   []int64
	reading []reading // one per bucket, same order
	limit   int       // rows per bucket
	budget  int64     // bytes of all windows together; at least one row is always taken

	planned   bool // only these rows, instead of all after
	positions []int64
	owners    []int16 // the bucket of each position

	release string // only the parked rows of this aggregate of the one bucket
}

// reading is what a sweep has to know of a bucket; a snapshot, safe to read while the engine goes on.
type reading struct {
	generation int
	skips      *skipIndex
	held       map[string]bool // aggregates whose later rows are parked
}

// sweepResult is one window per bucket that had rows.
type sweepResult struct {
	request *sweepRequest
	windows []*window
	err     error
}

// sweeper reads on a session of its own and renders what it reads. It runs beside the engine, so that reading the next
// window overlaps with the broker's work on this one.
type sweeper struct {
	cfg     *Config
	link    link
	render  *renderer
	windows *windowPool
	limits  func() (group, record int) // bytes: of a produce batch, of one record
	barrier barrier
	in      <-chan *sweepRequest
	out     chan<- sweepResult
}

func (s *sweeper) run(ctx context.Context) error {
	defer s.link.close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case req := <-s.in:
			res := sweepResult{request: req}
			res.windows, res.err = s.sweep(ctx, req)
			if len(res.windows) > 0 {
				s.barrier.wait(ctx, &s.link)
			}
			select {
			case s.out <- res:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func (s *sweeper) sweep(ctx context.Context, req *sweepRequest) ([]*window, error) {
	b := newWindowBuilder(s, req)
	err := s.link.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := req.query(ctx, conn)
		if err != nil {
			return fmt.Errorf("sweep outbox: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			b.add(rows.RawValues())
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("sweep outbox: %w", err)
		}
		return s.barrier.mark(ctx, conn)
	})
	if err != nil {
		b.discard()
		return nil, err
	}
	return b.finish(), nil
}

func (req *sweepRequest) query(ctx context.Context, conn *pgx.Conn) (pgx.Rows, error) {
	if req.release != "" {
		return conn.Query(ctx, sweepHeld, pgx.QueryResultFormats{pgx.BinaryFormatCode}, req.buckets[0], req.release, req.limit)
	}
	if req.planned {
		return conn.Query(ctx, sweepPlanned, pgx.QueryResultFormats{pgx.BinaryFormatCode}, req.owners, req.positions)
	}
	return conn.Query(ctx, sweepRows, pgx.QueryResultFormats{pgx.BinaryFormatCode}, req.buckets, req.after, req.limit)
}

// windowBuilder sorts the rows of one sweep into windows. Rows come bucket by bucket, each in position order.
type windowBuilder struct {
	s           *sweeper
	req         *sweepRequest
	group, rec  int
	done        []*window
	current     *window
	closed      bool // the current bucket takes no more rows: what follows is read again
	at          int  // index of the current bucket in the request
	bytes       int64
	count       int
	scratch     []byte
	wire        int
	currentRows int
}

func newWindowBuilder(s *sweeper, req *sweepRequest) *windowBuilder {
	b := &windowBuilder{s: s, req: req, at: -1}
	b.group, b.rec = s.limits()
	return b
}

func (b *windowBuilder) add(raw [][]byte) {
	bucket := int16(binary.BigEndian.Uint16(raw[colBucket]))
	if b.at < 0 || b.req.buckets[b.at] != bucket {
		b.open(bucket)
	}
	b.currentRows++
	if b.closed {
		b.current.full = true
		return
	}
	if b.bytes >= b.req.budget && b.count > 0 {
		b.closed, b.current.full = true, true
		return
	}
	b.take(raw)
}

func (b *windowBuilder) open(bucket int16) {
	b.close()
	for b.at++; b.at < len(b.req.buckets) && b.req.buckets[b.at] != bucket; b.at++ {
	}
	b.current, b.closed, b.wire, b.currentRows = b.s.windows.get(bucket), false, 0, 0
	b.current.generation = b.req.reading[b.at].generation
}

// close ends the current window: a sweep that returned as many rows as it asked for has more behind it.
func (b *windowBuilder) close() {
	w := b.current
	if w == nil {
		return
	}
	w.full = w.full || b.currentRows >= b.req.limit
	if len(w.rows) == 0 {
		w.recycle()
	} else {
		b.done = append(b.done, w)
	}
	b.current = nil
}

// take adds the row, or ends the window before it: a window is of one kind, and a record that cannot be sent stands alone.
func (b *windowBuilder) take(raw [][]byte) {
	w, rd := b.current, &b.req.reading[b.at]
	stream := streamKey{}
	sequence := int64(binary.BigEndian.Uint64(raw[colSequence]))
	if !rd.skips.empty() || len(rd.held) > 0 {
		stream = streamKey{aggregate: string(raw[colAggregate]), stream: string(raw[colStream]), epoch: int64(binary.BigEndian.Uint64(raw[colEpoch]))}
	}
	kind := b.kind(rd, stream, sequence)
	if len(w.rows) > 0 && (w.kind != kind || w.kind == windowOversize) {
		b.closed, w.full = true, true
		return
	}
	skips := rd.skips.before(stream, sequence)
	b.scratch = appendSkips(b.scratch[:0], skips)
	before := w.bytes
	b.s.render.add(w, raw, b.scratch)
	w.kind = kind
	if len(skips) > 0 {
		w.carries = append(w.carries, carried{row: len(w.rows) - 1, stream: stream, below: sequence})
	}
	b.settle(w, before)
}

// settle checks the limits after a row was added.
func (b *windowBuilder) settle(w *window, before int) {
	size := int(w.last().size)
	if size > b.rec && w.kind == windowPublish {
		if len(w.rows) > 1 {
			w.cut(len(w.rows) - 1)
			b.closed = true
			return
		}
		w.kind = windowOversize
	}
	b.wire += size
	b.bytes += int64(w.bytes - before)
	b.count++
	if b.wire > b.group && len(w.rows) > 1 {
		w.cut(len(w.rows) - 1)
		b.closed = true
	}
}

func (b *windowBuilder) kind(rd *reading, stream streamKey, sequence int64) windowKind {
	switch {
	case b.req.release != "":
		return windowRelease
	case rd.skips.contains(stream, sequence):
		return windowSkipped
	case rd.held[stream.aggregate]:
		return windowPark
	}
	return windowPublish
}

func (b *windowBuilder) finish() []*window {
	b.close()
	return b.done
}

func (b *windowBuilder) discard() {
	for _, w := range b.finish() {
		w.recycle()
	}
}
