package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// errUnregistered says that the instance's row is gone: the database was restored, or an operator removed it.
var errUnregistered = errors.New("the lease row of this instance is gone")

// claim is a bucket as it was when this instance became its owner.
type claim struct {
	bucket   int16
	term     int64
	cursor   int64
	cursorID pgtype.UUID
	cursorAt pgtype.Timestamptz
	since    time.Time // nothing above the cursor can be older on the topic; zero = unknown
}

// standing is what one renewal tells the engine.
type standing struct {
	owned   map[int16]int64 // bucket → term, as the database had it before the claims of the same turn
	claims  []claim
	release int // how many buckets are above the fair share
}

// leaser renews the one lease of this instance, on a session of its own, and claims free buckets up to the fair share.
// It never touches a bucket that the engine still works on: giving back is the engine's, which knows what is in flight.
type leaser struct {
	cfg      Config
	instance string
	link     link
	log      *slog.Logger
	out      chan<- standing
	trusted  *atomic.Pointer[time.Time] // read by the engine before each submit
	draining atomic.Bool                // set at stop: claim nothing more
	paused   *atomic.Bool               // the engine cannot publish (Kafka away): claim nothing
	swept    time.Time
}

// run renews until ctx ends. A failed renewal is not an error of the loop: the lease simply is not extended, and the
// engine stops by itself when trust runs out.
func (l *leaser) run(ctx context.Context) error {
	defer l.link.close()
	registered := false
	tick := time.NewTicker(l.cfg.Renew)
	defer tick.Stop()
	for {
		if err := l.turn(ctx, &registered); err != nil && ctx.Err() == nil {
			l.log.Warn("lease not renewed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (l *leaser) turn(ctx context.Context, registered *bool) error {
	sentAt := l.cfg.now()
	var s standing
	err := l.link.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if !*registered {
			if _, err := conn.Exec(ctx, registerInstance, l.instance, l.cfg.TTL); err != nil {
				return fmt.Errorf("register instance: %w", err)
			}
			*registered = true
		}
		live, err := l.renew(ctx, conn, &s)
		if err != nil {
			return err
		}
		return l.share(ctx, conn, live, &s)
	})
	if errors.Is(err, errUnregistered) {
		*registered = false
	}
	if err != nil {
		return err
	}
	until := trust(sentAt, l.cfg.TTL, l.cfg.Margin)
	l.trusted.Store(&until)
	select {
	case l.out <- s:
		return nil
	case <-ctx.Done():
		return nil
	}
}

// renew extends the lease and reads who lives and what we own, in one round trip.
func (l *leaser) renew(ctx context.Context, conn *pgx.Conn, s *standing) ([]string, error) {
	var live []string
	s.owned = make(map[int16]int64)
	b := &pgx.Batch{}
	b.Queue(renewLease, l.instance, l.cfg.TTL).Exec(func(ct pgconn.CommandTag) error {
		if ct.RowsAffected() == 0 {
			return errUnregistered
		}
		return nil
	})
	b.Queue(liveInstances).Query(func(rows pgx.Rows) (err error) {
		live, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	b.Queue(ownedBuckets, l.instance).Query(func(rows pgx.Rows) error {
		var bucket int16
		var term int64
		_, err := pgx.ForEachRow(rows, []any{&bucket, &term}, func() error {
			s.owned[bucket] = term
			return nil
		})
		return err
	})
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("renew lease: %w", err)
	}
	return live, nil
}

func (l *leaser) share(ctx context.Context, conn *pgx.Conn, live []string, s *standing) error {
	want := fairShare(l.cfg.Buckets, live, l.instance)
	if have := len(s.owned); have > want {
		s.release = have - want
	} else if have < want && !l.draining.Load() && !l.paused.Load() {
		claims, err := l.claim(ctx, conn, want-have)
		if err != nil {
			return err
		}
		s.claims = claims
	}
	if l.cfg.now().Sub(l.swept) < time.Minute {
		return nil
	}
	l.swept = l.cfg.now()
	if _, err := conn.Exec(ctx, sweepInstances); err != nil {
		return fmt.Errorf("sweep old instances: %w", err)
	}
	return nil
}

func (l *leaser) claim(ctx context.Context, conn *pgx.Conn, n int) ([]claim, error) {
	var claims []claim
	b := &pgx.Batch{} // one implicit transaction
	b.Queue(claimLock)
	b.Queue(claimBuckets, l.instance, n).Query(func(rows pgx.Rows) (err error) {
		claims, err = pgx.CollectRows(rows, scanClaim)
		return err
	})
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("claim buckets: %w", err)
	}
	return claims, nil
}

func scanClaim(row pgx.CollectableRow) (claim, error) {
	var c claim
	err := row.Scan(&c.bucket, &c.term, &c.cursor, &c.cursorID, &c.cursorAt)
	if c.cursorAt.Valid {
		c.since = c.cursorAt.Time.Add(-tailSlack)
	}
	return c, err
}

// unregister removes the lease row: whatever is still owned is free at once.
func (l *leaser) unregister(ctx context.Context) error {
	return l.link.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, removeInstance, l.instance); err != nil {
			return fmt.Errorf("unregister instance: %w", err)
		}
		return nil
	})
}
