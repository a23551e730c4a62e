package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// plan is what the policy latest publishes of a bucket's backlog: the newest row of each stream up to a frozen head, in
// position order. Everything else up to the head is superseded and recorded as such before the first row is sent, so that
// a later owner with another policy leaves the same rows out (O2).
type plan struct {
	positions  []int64
	superseded int64
	skips      *skipIndex
}

// makePlan decides and records in one transaction that holds the bucket's row: a stale owner plans nothing.
func (w *cursorWriter) makePlan(ctx context.Context, conn *pgx.Conn, bw *bucketWrite, res *writeResult) error {
	p := &plan{}
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
		return p.decide(ctx, tx, bw.bucket, cursor)
	})
	if err != nil {
		return fmt.Errorf("plan backlog of bucket %d: %w", bw.bucket, err)
	}
	res.plans[bw.bucket] = p
	return nil
}

func (p *plan) decide(ctx context.Context, tx pgx.Tx, bucket int16, cursor int64) error {
	rows, err := tx.Query(ctx, newestRows, bucket, cursor)
	if err != nil {
		return err
	}
	if p.positions, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
		return err
	}
	ix := indexes{skips: make(map[int16]*skipIndex)}
	if len(p.positions) == 0 {
		err = ix.loadSkips(ctx, tx, []int16{bucket})
		p.skips = ix.skips[bucket]
		return err
	}
	head := p.positions[len(p.positions)-1]
	if err := tx.QueryRow(ctx, supersede, bucket, cursor, head).Scan(&p.superseded); err != nil {
		return err
	}
	err = ix.loadSkips(ctx, tx, []int16{bucket})
	p.skips = ix.skips[bucket]
	return err
}

// applyPlan lets the bucket follow its plan.
func (e *engine) applyPlan(b *bucketState, p *plan) {
	b.phase = phaseActive
	if p == nil {
		return
	}
	b.plan, b.skips, b.more = p.positions, p.skips, true
	e.m.superseded.Add(float64(p.superseded))
	e.log.Info("backlog superseded", "bucket", b.id, "streams", len(p.positions), "rows", p.superseded)
}
