package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// decidedHead is an aggregate whose dead head an operator decided: its parked rows may leave, before any newer row of it.
type decidedHead struct {
	bucket    int16
	aggregate string
	discard   bool // a head of it is discarded: that is recorded as skipped before anything behind it is sent
}

// decidedWatch looks for decisions about the buckets of this instance.
type decidedWatch struct {
	instance string
	link     link
	out      chan<- []decidedHead
	log      *slog.Logger
}

func (d *decidedWatch) run(ctx context.Context) error {
	defer d.link.close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		heads, err := d.look(ctx)
		if err != nil && ctx.Err() == nil {
			d.log.Warn("decisions not read", "error", err)
		}
		if len(heads) == 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case d.out <- heads:
		}
	}
}

func (d *decidedWatch) look(ctx context.Context) (heads []decidedHead, err error) {
	err = d.link.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, decidedHeads, d.instance)
		if err != nil {
			return fmt.Errorf("look for decisions: %w", err)
		}
		heads, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (decidedHead, error) {
			var h decidedHead
			err := r.Scan(&h.bucket, &h.aggregate, &h.discard)
			return h, err
		})
		return err
	})
	return heads, err
}

// heldWrite is a change of parked rows, under the bucket's term.
type heldWrite struct {
	aggregate string
	discard   bool    // record discarded heads as skipped
	sent      []int64 // positions that the broker acknowledged
	revive    int64   // a head that failed again
	code, why string
	skips     *skipIndex
}

// release starts with one aggregate per bucket; the others are seen again a second later.
func (e *engine) release(heads []decidedHead) {
	for _, h := range heads {
		b := e.buckets[h.bucket]
		if b == nil || b.phase != phaseActive || b.releasing || b.deciding != "" {
			continue
		}
		b.deciding = h.aggregate
		if h.discard {
			e.writes = append(e.writes, bucketWrite{bucket: b.id, term: b.term, held: &heldWrite{aggregate: h.aggregate, discard: true}})
			continue
		}
		e.sweepHeld(b)
	}
}

// sweepHeld reads the next parked rows of the aggregate that is being released.
func (e *engine) sweepHeld(b *bucketState) {
	if e.sweeping >= e.numSweeps {
		b.deciding = "" // the next look tries again
		return
	}
	e.sweeping++
	e.sweeps <- &sweepRequest{
		release: b.deciding, buckets: []int16{b.id}, limit: e.cfg.WindowRows, budget: int64(e.cfg.GroupBytes),
		reading: []reading{{generation: b.generation, skips: b.skips}},
	}
}

func (e *engine) acceptReleased(r sweepResult) {
	b := e.buckets[r.request.buckets[0]]
	current := b != nil && b.generation == r.request.reading[0].generation && b.deciding == r.request.release
	if r.err != nil {
		e.log.Warn("parked rows not read", "error", r.err)
	}
	for _, w := range r.windows {
		if !current || b.released != nil {
			w.recycle()
			continue
		}
		e.memory += int64(w.bytes)
		b.released = w
	}
	switch {
	case !current:
	case r.err != nil:
		b.deciding = ""
	case b.released == nil: // nothing is left: see whether the aggregate is free
		e.writes = append(e.writes, bucketWrite{bucket: b.id, term: b.term, held: &heldWrite{aggregate: b.deciding}})
	}
}

// creditReleased marks what was acknowledged. The cursor has passed these rows long ago.
func (e *engine) creditReleased(b *bucketState, s *segment) {
	h := &heldWrite{aggregate: b.deciding}
	for i := s.from; i < s.from+s.acked; i++ {
		h.sent = append(h.sent, s.w.rows[i].position)
	}
	e.m.published.Add(float64(s.acked))
	if s.acked == s.to-s.from {
		e.free(s.w)
		b.released = nil
	}
	if len(h.sent) > 0 {
		e.writes = append(e.writes, bucketWrite{bucket: b.id, term: b.term, held: h})
	}
}

// failReleased gives up this attempt: an outage is tried again with the next look, a row's own fault makes it dead again.
func (e *engine) failReleased(b *bucketState, s *segment, v Verdict, g *group) {
	aggregate, first := b.deciding, s.w.rows[s.from+s.acked]
	e.free(s.w)
	b.released, b.deciding = nil, ""
	if !v.CostsRow() || g.records > 1 {
		return
	}
	h := &heldWrite{aggregate: aggregate, revive: first.position, code: v.Code, why: g.err.Error()}
	e.writes = append(e.writes, bucketWrite{bucket: b.id, term: b.term, held: h})
}

// writeHeld applies a change of parked rows in a transaction that holds the bucket's row (O3).
func (w *cursorWriter) writeHeld(ctx context.Context, conn *pgx.Conn, bw *bucketWrite, res *writeResult) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var cursor int64
		err := tx.QueryRow(ctx, ownBucket, bw.bucket, w.instance, bw.term).Scan(&cursor)
		if errors.Is(err, pgx.ErrNoRows) {
			res.lost[bw.bucket] = true
			return nil
		}
		if err != nil {
			return err
		}
		return bw.held.apply(ctx, tx, bw.bucket, res)
	})
	return wrap("write parked rows", err)
}

func (h *heldWrite) apply(ctx context.Context, tx pgx.Tx, bucket int16, res *writeResult) error {
	if h.discard {
		return h.discardHeads(ctx, tx, bucket)
	}
	if h.revive > 0 {
		_, err := tx.Exec(ctx, reviveDead, bucket, h.revive, h.code, h.why)
		return err
	}
	if len(h.sent) > 0 {
		_, err := tx.Exec(ctx, markReleased, bucket, h.sent)
		return err
	}
	var left int
	if err := tx.QueryRow(ctx, stillHeld, bucket, h.aggregate).Scan(&left); err != nil {
		return err
	}
	if left == 0 {
		res.freed[bucket] = h.aggregate
	}
	return nil
}

func (h *heldWrite) discardHeads(ctx context.Context, tx pgx.Tx, bucket int16) error {
	if _, err := tx.Exec(ctx, skipDiscarded, bucket, h.aggregate); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, discardHeads, bucket, h.aggregate); err != nil {
		return err
	}
	ix := indexes{skips: make(map[int16]*skipIndex)}
	err := ix.loadSkips(ctx, tx, []int16{bucket})
	h.skips = ix.skips[bucket]
	return err
}

// applyHeld goes on with the release: the next parked rows, or, when there are none, the aggregate flows again. Rows of
// it that were read as parked meanwhile are read again.
func (e *engine) applyHeld(b *bucketState, h *heldWrite, freed string) {
	switch {
	case h.discard:
		b.skips = h.skips
	case h.revive > 0:
		return
	case freed != "" && b.deciding == freed:
		b.held = withoutKey(b.held, freed)
		b.deciding = ""
		e.memory -= b.forget()
		return
	case len(h.sent) == 0:
		b.deciding = ""
		return
	}
	if b.deciding == h.aggregate && b.released == nil {
		e.sweepHeld(b)
	}
}

// withoutKey copies: a sweep that is out reads the old map.
func withoutKey(m map[string]bool, key string) map[string]bool {
	next := withKey(m, key)
	delete(next, key)
	return next
}
