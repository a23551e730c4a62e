package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	barrierPoll  = 2 * time.Millisecond
	barrierQuiet = 10 * time.Second // a wait is logged after this long, and each time it has doubled
)

// barrier holds rows back until a named standby has them on its disk (Config.Standby). A standby that is promoted then
// lacks nothing that was published, so its relays go on by themselves instead of halting for a rebase.
//
// The position is taken after the rows were read: whoever's rows a snapshot shows has flushed its commit before, so that
// position covers all of them. It waits for as long as it takes; the age of the oldest unpublished row tells.
type barrier struct {
	standby string
	log     *slog.Logger
	m       *metrics
	behind  string // position in the log that covers what was read last
}

// mark notes the position that covers the rows just read on conn.
func (b *barrier) mark(ctx context.Context, conn *pgx.Conn) error {
	if b.standby == "" {
		return nil
	}
	if err := conn.QueryRow(ctx, logPosition).Scan(&b.behind); err != nil {
		return fmt.Errorf("read log position: %w", err)
	}
	return nil
}

// wait returns when the standby has flushed what was marked, or ctx ends.
func (b *barrier) wait(ctx context.Context, l *link) {
	if b.standby == "" {
		return
	}
	b.m.standbyWaiting.Inc()
	defer b.m.standbyWaiting.Dec()
	started, quiet, pause := time.Now(), barrierQuiet, barrierPoll
	for {
		why := b.check(ctx, l)
		if why == nil || ctx.Err() != nil {
			return
		}
		if waited := time.Since(started); waited > quiet {
			quiet *= 2
			b.log.Warn("rows wait for the standby", "standby", b.standby, "waited", waited.Round(time.Second), "error", why)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(pause+pause/4, 50*time.Millisecond)
	}
}

// check is nil when the standby has flushed what was marked, else why that is not known.
func (b *barrier) check(ctx context.Context, l *link) error {
	var connected, visible int
	var flushed bool
	err := l.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, standbyFlushed, b.standby, b.behind).Scan(&connected, &visible, &flushed)
	})
	switch {
	case err != nil:
		return fmt.Errorf("ask for the standby's position: %w", err)
	case flushed:
		return nil
	case connected == 0:
		return fmt.Errorf("no standby with application_name %q is connected", b.standby)
	case visible == 0:
		return fmt.Errorf("its position is hidden: GRANT pg_read_all_stats TO hubstate_relay lets it be seen")
	}
	return fmt.Errorf("it has not flushed %s", b.behind)
}
