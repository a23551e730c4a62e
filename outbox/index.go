package outbox

import (
	"context"
	"fmt"

	"github.com/hubstate/hubstate/internal/mutant"
	"github.com/jackc/pgx/v5"
)

// indexes are what an owner has to obey of earlier owners' decisions.
type indexes struct {
	skips map[int16]*skipIndex
	held  map[int16]map[string]bool
}

// loadIndexes reads outbox_skipped and the held aggregates of the claimed buckets.
func loadIndexes(ctx context.Context, conn *pgx.Conn, claims []claim) (indexes, error) {
	ix := indexes{skips: make(map[int16]*skipIndex), held: make(map[int16]map[string]bool)}
	buckets := make([]int16, 0, len(claims))
	for _, c := range claims {
		buckets = append(buckets, c.bucket)
	}
	if mutant.On(MutantForgetSkips) {
		buckets = nil
	}
	if err := ix.loadSkips(ctx, conn, buckets); err != nil {
		return ix, fmt.Errorf("load skipped ranges: %w", err)
	}
	if err := ix.loadHeld(ctx, conn, buckets); err != nil {
		return ix, fmt.Errorf("load held aggregates: %w", err)
	}
	return ix, nil
}

func (ix *indexes) loadSkips(ctx context.Context, conn Querier, buckets []int16) error {
	rows, err := conn.Query(ctx, loadSkipped, buckets)
	if err != nil {
		return err
	}
	var bucket int16
	var k streamKey
	var s skip
	var upTo int64
	_, err = pgx.ForEachRow(rows, []any{&bucket, &k.aggregate, &k.stream, &k.epoch, &s.from, &s.to, &s.reason, &upTo}, func() error {
		x := ix.skips[bucket]
		if x == nil {
			x = &skipIndex{ranges: make(map[streamKey][]skip)}
			ix.skips[bucket] = x
		}
		x.ranges[k] = append(x.ranges[k], s)
		return nil
	})
	return err
}

func (ix *indexes) loadHeld(ctx context.Context, conn *pgx.Conn, buckets []int16) error {
	rows, err := conn.Query(ctx, loadHeld, buckets)
	if err != nil {
		return err
	}
	var bucket int16
	var aggregate string
	_, err = pgx.ForEachRow(rows, []any{&bucket, &aggregate}, func() error {
		if ix.held[bucket] == nil {
			ix.held[bucket] = make(map[string]bool)
		}
		ix.held[bucket][aggregate] = true
		return nil
	})
	return err
}
