package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errLaneLost means that another ingester owns the lane now: whatever is in hand must not be committed or acknowledged.
var errLaneLost = errors.New("the lane has another owner")

// lane is the ownership of one ordered lane, a row of ingest_lane. A lane has one owner; every batch and every change of
// the row names the term under which it was claimed, so an owner that slept through its lease changes nothing.
//
// The database's clock judges the lease. The owner trusts it from before the renewal was sent, less a margin, so it stops
// using the client id before a successor may take it.
type lane struct {
	name  string
	owner string
	ttl   time.Duration
	pool  *pgxpool.Pool

	term  int64
	batch int64 // number of the last committed batch

	tail        tail
	filters     []string
	inDoubt     bool // a CONNECT left since filters was true
	sessionSeen bool
	crashed     bool      // the predecessor did not release
	committedAt time.Time // of the predecessor's last batch; zero = never

	trusted atomic.Int64 // unix microseconds until which the lease is trusted
}

// doubt stands before the stored filters while a CONNECT is under way.
const doubt = "?"

// claim tries once. It reports false while another owner's lease runs. With succeed an unexpired lease of our own
// instance name is taken over too: that is our predecessor, which no longer runs.
func (l *lane) claim(ctx context.Context, succeed bool) (bool, error) {
	var stored []byte
	var filters *string
	var committed *time.Time
	var before *string
	sent := time.Now()
	err := l.pool.QueryRow(ctx, claimLane, l.name, l.owner, l.ttl.Microseconds(), succeed).
		Scan(&l.term, &l.batch, &stored, &filters, &l.sessionSeen, &committed, &before)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("claim lane %s: %w", l.name, err)
	}
	if l.tail, err = loadTail(stored); err != nil {
		return false, err
	}
	l.committedAt, l.crashed = time.Time{}, before != nil
	l.readFilters(filters)
	if committed != nil {
		l.committedAt = *committed
	}
	l.trust(sent)
	return true, nil
}

// renew extends the lease, or returns errLaneLost.
func (l *lane) renew(ctx context.Context) error {
	sent := time.Now()
	tag, err := l.pool.Exec(ctx, renewLane, l.name, l.term, l.ttl.Microseconds())
	if err != nil {
		return fmt.Errorf("renew lane %s: %w", l.name, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("renew lane %s: %w", l.name, errLaneLost)
	}
	l.trust(sent)
	return nil
}

// release lets a standby take over at once.
func (l *lane) release(ctx context.Context) error {
	l.trusted.Store(0)
	if _, err := l.pool.Exec(ctx, releaseLane, l.name, l.term); err != nil {
		return fmt.Errorf("release lane %s: %w", l.name, err)
	}
	return nil
}

// connecting records, before a CONNECT leaves, that what the broker's session is subscribed to is in doubt: the broker
// may make a new session and the answer may be lost. Only subscribed takes the doubt away.
func (l *lane) connecting(ctx context.Context) error {
	if l.inDoubt {
		return nil
	}
	if err := l.writeFilters(ctx, append([]string{doubt}, l.filters...)); err != nil {
		return err
	}
	l.inDoubt = true
	return nil
}

// subscribed records what the broker's session is subscribed to, without doubt.
func (l *lane) subscribed(ctx context.Context, filters []string) error {
	l.sessionSeen = true
	if err := l.writeFilters(ctx, filters); err != nil {
		return err
	}
	l.filters, l.inDoubt = slices.Clone(filters), false
	return nil
}

func (l *lane) writeFilters(ctx context.Context, filters []string) error {
	tag, err := l.pool.Exec(ctx, subscribeLane, l.name, l.term, strings.Join(filters, "\n"), l.sessionSeen)
	if err != nil {
		return fmt.Errorf("record filters of lane %s: %w", l.name, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("record filters of lane %s: %w", l.name, errLaneLost)
	}
	return nil
}

func (l *lane) readFilters(stored *string) {
	l.filters, l.inDoubt = nil, false
	if stored == nil || *stored == "" {
		return
	}
	l.filters = strings.Split(*stored, "\n")
	if l.filters[0] == doubt {
		l.filters, l.inDoubt = l.filters[1:], true
	}
}

func (l *lane) trust(sent time.Time) { l.trusted.Store(sent.Add(l.ttl - l.ttl/5).UnixMicro()) }

// trustedFor is how long the lease may still be trusted without hearing from the database.
func (l *lane) trustedFor(now time.Time) time.Duration {
	return time.UnixMicro(l.trusted.Load()).Sub(now)
}

// possibleGap is a window in which reports may have been lost before us without a counter to show it.
type possibleGap struct {
	cause  string
	from   time.Time // zero = unknown
	to     time.Time
	detail string
}

// The causes of a possible gap.
const (
	gapSessionLost    = "session_lost"         // the broker no longer knew a session that we expected
	gapConnectionLost = "qos0_connection_lost" // QoS 0 messages may have been on the way
	gapBrokerDropped  = "broker_dropped"       // the broker's own drop counter rose
)

func (l *lane) recordGap(ctx context.Context, g possibleGap) error {
	if _, err := l.pool.Exec(ctx, insertPossibleGap, l.name, g.cause, instant(g.from), g.to, g.detail); err != nil {
		return fmt.Errorf("record possible gap of lane %s: %w", l.name, err)
	}
	return nil
}

// brokerDropped is the broker's drop counter as it was last read; known is false when it never was.
func (l *lane) brokerDropped(ctx context.Context) (n int64, known bool, err error) {
	var stored *int64
	if err := l.pool.QueryRow(ctx, readDropped, l.name).Scan(&stored); err != nil {
		return 0, false, fmt.Errorf("read drop counter of lane %s: %w", l.name, err)
	}
	if stored == nil {
		return 0, false, nil
	}
	return *stored, true, nil
}

// setBrokerDropped keeps a reading and, in the same transaction, the gap that it shows (nil = none).
func (l *lane) setBrokerDropped(ctx context.Context, n int64, gap *possibleGap) error {
	return pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, writeDropped, l.name, l.term, n)
		if err == nil && tag.RowsAffected() == 0 {
			err = errLaneLost
		}
		if err == nil && gap != nil {
			_, err = tx.Exec(ctx, insertPossibleGap, l.name, gap.cause, instant(gap.from), gap.to, gap.detail)
		}
		if err != nil {
			return fmt.Errorf("record drop counter of lane %s: %w", l.name, err)
		}
		return nil
	})
}
