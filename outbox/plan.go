package outbox

import (
	"context"
	"slices"
	"time"

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

// planTimeout bounds one look at the whole backlog: about a second for each million rows.
const planTimeout = 10 * time.Minute

// backlogGroup is what a backlog holds of one stream in one epoch.
type backlogGroup struct {
	bucket    int16
	key       streamKey
	low, high int64 // sequences
	newest    int64 // position of its last row
}

// newSkip is a range that a plan leaves out. upTo is the frozen head of its bucket.
type newSkip struct {
	bucket   int16
	key      streamKey
	from, to int64
	upTo     int64
}

// makePlans decides and records the plans of all buckets that ask for one, with one look at the backlog: the rows of a
// bucket lie scattered over the whole table, so a look for each bucket would read the table once for each (64 times for
// the 5,000,000 rows of a two-hour outage: minutes instead of seconds). The transaction holds the buckets' rows: a stale
// owner plans nothing (O3), and nobody claims a bucket from under its plan.
func (w *cursorWriter) makePlans(ctx context.Context, res *writeResult) error {
	buckets, terms := res.planned()
	if len(buckets) == 0 {
		return nil
	}
	err := w.plans.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			cursors, err := w.holdBuckets(ctx, tx, buckets, terms)
			if err != nil {
				return err
			}
			for _, bucket := range buckets {
				if _, mine := cursors[bucket]; !mine {
					res.lost[bucket] = true
				}
			}
			return planAll(ctx, tx, cursors, res.plans)
		})
	})
	return wrap("plan backlog", err)
}

// planned are the buckets whose writes ask for a plan, with the terms.
func (r *writeResult) planned() (buckets []int16, terms []int64) {
	for i := range r.writes {
		if bw := &r.writes[i]; bw.plan {
			buckets, terms = append(buckets, bw.bucket), append(terms, bw.term)
		}
	}
	return buckets, terms
}

func (w *cursorWriter) holdBuckets(ctx context.Context, tx pgx.Tx, buckets []int16, terms []int64) (map[int16]int64, error) {
	rows, err := tx.Query(ctx, ownBuckets, buckets, terms, w.instance)
	if err != nil {
		return nil, err
	}
	cursors := make(map[int16]int64)
	var bucket int16
	var cursor int64
	_, err = pgx.ForEachRow(rows, []any{&bucket, &cursor}, func() error { cursors[bucket] = cursor; return nil })
	return cursors, err
}

// planAll fills plans for the buckets behind their cursors.
func planAll(ctx context.Context, tx pgx.Tx, cursors map[int16]int64, plans map[int16]*plan) error {
	var buckets []int16
	var after []int64
	for bucket, cursor := range cursors {
		buckets, after = append(buckets, bucket), append(after, cursor)
		plans[bucket] = &plan{}
	}
	rows, err := tx.Query(ctx, backlogGroups, buckets, after)
	if err != nil {
		return err
	}
	groups, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (g backlogGroup, err error) {
		err = r.Scan(&g.bucket, &g.key.aggregate, &g.key.stream, &g.key.epoch, &g.low, &g.high, &g.newest)
		return g, err
	})
	if err != nil {
		return err
	}
	ix := indexes{skips: make(map[int16]*skipIndex)}
	if err := ix.loadSkips(ctx, tx, buckets); err != nil {
		return err
	}
	skips := decidePlans(groups, ix.skips, plans)
	if err := recordSkips(ctx, tx, skips); err != nil {
		return err
	}
	ix.skips = make(map[int16]*skipIndex)
	if err := ix.loadSkips(ctx, tx, buckets); err != nil {
		return err
	}
	for bucket, p := range plans {
		p.skips = ix.skips[bucket]
	}
	return nil
}

// decidePlans takes the newest row of each stream, in its highest epoch, and leaves out one range per stream and epoch:
// everything before. What an earlier plan recorded is not recorded again.
func decidePlans(groups []backlogGroup, known map[int16]*skipIndex, plans map[int16]*plan) (skips []newSkip) {
	type stream struct {
		bucket            int16
		aggregate, stream string
	}
	of := func(g *backlogGroup) stream { return stream{g.bucket, g.key.aggregate, g.key.stream} }
	last := make(map[stream]*backlogGroup)
	heads := make(map[int16]int64)
	for i := range groups {
		g := &groups[i]
		heads[g.bucket] = max(heads[g.bucket], g.newest)
		if l := last[of(g)]; l == nil || l.key.epoch < g.key.epoch {
			last[of(g)] = g
		}
	}
	for _, g := range last {
		p := plans[g.bucket]
		p.positions = append(p.positions, g.newest)
	}
	for i := range groups {
		g := &groups[i]
		from, to := max(g.low, known[g.bucket].end(g.key)+1), g.high
		if last[of(g)] == g {
			to--
		}
		if from <= to {
			skips = append(skips, newSkip{bucket: g.bucket, key: g.key, from: from, to: to, upTo: heads[g.bucket]})
			plans[g.bucket].superseded += to - from + 1
		}
	}
	for _, p := range plans {
		slices.Sort(p.positions)
	}
	return skips
}

// recordSkips writes the ranges before the first row of a plan is sent (O2).
func recordSkips(ctx context.Context, tx pgx.Tx, skips []newSkip) error {
	at := -1
	columns := []string{"bucket", "aggregate_id", "stream", "epoch", "from_sequence", "to_sequence", "reason", "up_to"}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"outbox_skipped"}, columns, pgx.CopyFromFunc(func() ([]any, error) {
		if at++; at == len(skips) {
			return nil, nil
		}
		s := &skips[at]
		return []any{s.bucket, s.key.aggregate, s.key.stream, s.key.epoch, s.from, s.to, SkippedSuperseded, s.upTo}, nil
	}))
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
