package ingest

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// capacity watches how many unpublished bytes the outbox holds. Above the cap writers either stop taking (block: nothing
// is acknowledged, the broker queues) or append no events (latest: the streams are owed one). Safe for concurrent use.
type capacity struct {
	pool    *pgxpool.Pool
	max     int64
	policy  string
	every   time.Duration
	metrics *metrics
	log     *slog.Logger
	full    atomic.Bool
}

func (c *capacity) blocked() bool     { return c.full.Load() && c.policy == FullBlock }
func (c *capacity) withholding() bool { return c.full.Load() && c.policy == FullLatest }

// pause is how long a blocked writer waits before it looks again.
func (c *capacity) pause() time.Duration { return min(c.every/4, 500*time.Millisecond) }

// run measures until ctx ends. The cap is left at nine tenths, so that it does not flutter.
func (c *capacity) run(ctx context.Context) error {
	for {
		c.measure(ctx)
		if sleep(ctx, c.every) != nil {
			return nil
		}
	}
}

func (c *capacity) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.every+transactionTimeout)
	defer cancel()
	var bytes int64
	if err := c.pool.QueryRow(ctx, readBacklog).Scan(&bytes); err != nil {
		if ctx.Err() == nil {
			c.log.Warn("outbox not measured", "error", err)
		}
		return
	}
	c.metrics.backlogBytes.Set(float64(bytes))
	was := c.full.Load()
	switch {
	case !was && bytes > c.max:
		c.full.Store(true)
		c.log.Error("outbox above its cap", "bytes", bytes, "cap", c.max, "policy", c.policy)
	case was && bytes < c.max/10*9:
		c.full.Store(false)
		c.log.Info("outbox below its cap", "bytes", bytes, "cap", c.max)
	}
}
