package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Operator does what people decide about devices. Every change is audited in its own transaction. Safe for use beside
// running ingesters: it takes the same bucket locks.
type Operator struct {
	pool    *pgxpool.Pool
	buckets int
	actor   string
}

// NewOperator acts as actor on the database of pool, which must run as Role with SessionSettings.
func NewOperator(pool *pgxpool.Pool, buckets int, actor string) *Operator {
	return &Operator{pool: pool, buckets: buckets, actor: actor}
}

// Restated is one stream whose current state was emitted again.
type Restated struct {
	Device   string `json:"device_id"`
	Stream   string `json:"stream"`
	Hub      string `json:"hub_id"`
	Epoch    int64  `json:"epoch"`
	Sequence int64  `json:"sequence"`
}

// AcceptReboot makes the next report of a stream start a boot, whatever its counter says: the cure for a device that was
// reset in a way that no rule recognises. It returns ErrUnknownDevice for a stream without state.
func (o *Operator) AcceptReboot(ctx context.Context, device, stream, reason string) error {
	var marked int64
	audit := o.audit("accept_reboot", device+" "+stream, reason)
	return twoTrips(ctx, o.pool,
		func(b *pgx.Batch) {
			new(outbox.Txn).Begin(b, o.buckets, []string{device})
			b.Queue(markReboot, device, stream).Exec(func(tag pgconn.CommandTag) error { marked = tag.RowsAffected(); return nil })
		},
		func(b *pgx.Batch) error {
			if marked == 0 {
				return fmt.Errorf("accept reboot of %s %s: %w", device, stream, ErrUnknownDevice)
			}
			audit.queue(b, nil)
			return nil
		})
}

// Restate emits the current state of a device's streams (or of the one named) under their next sequences: compensation,
// for a consumer that lost or mishandled what was said before.
func (o *Operator) Restate(ctx context.Context, device, stream, reason string) ([]Restated, error) {
	return o.say(ctx, pick{devices: []string{device}, stream: stream, audit: o.audit("restate", device, reason)})
}

// Move makes hub the hub of a device and says its states again from there. Reports from another hub than a device's own
// are quarantined until then.
func (o *Operator) Move(ctx context.Context, device, hub, reason string) ([]Restated, error) {
	if !validLevel(hub) {
		return nil, fmt.Errorf("move %s: hub %q must match [A-Za-z0-9._:-]{1,128}", device, hub)
	}
	return o.say(ctx, pick{devices: []string{device}, hub: hub, audit: o.audit("move", device, reason)})
}

func (o *Operator) audit(action, subject, reason string) *auditEntry {
	return &auditEntry{actor: o.actor, action: action, subject: subject, reason: reason}
}

func (o *Operator) say(ctx context.Context, p pick) ([]Restated, error) {
	done, err := newRestater(o.pool, o.buckets).run(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(done) == 0 {
		return nil, fmt.Errorf("%s %s: %w", p.audit.action, p.devices[0], ErrUnknownDevice)
	}
	list := make([]Restated, 0, len(done))
	for _, d := range done {
		list = append(list, Restated{Device: d.device, Stream: d.stream, Hub: d.state.Hub, Epoch: d.state.Epoch, Sequence: d.state.Sequence})
	}
	return list, nil
}

// Gap is a range of a device's own counters that never reached us, or reached us late.
type Gap struct {
	ID          int64      `json:"id"`
	Device      string     `json:"device_id"`
	Stream      string     `json:"stream"`
	Boot        *int64     `json:"boot"`
	From        int64      `json:"from"`
	To          int64      `json:"to"`
	ArrivedLate int64      `json:"arrived_late"`
	Missing     string     `json:"missing"` // ranges, as PostgreSQL writes them: {[5,7),[9,10)}
	DetectedAt  time.Time  `json:"detected_at"`
	ClosedAt    *time.Time `json:"closed_at"`
}

// PossibleGap is a window in which reports may have been lost before us without a counter to show it.
type PossibleGap struct {
	ID     int64      `json:"id"`
	Lane   string     `json:"lane"`
	Cause  string     `json:"cause"`
	From   *time.Time `json:"from"`
	To     time.Time  `json:"to"`
	Detail string     `json:"detail"`
}

// GapFilter narrows Gaps. The zero value takes the open gaps of all devices.
type GapFilter struct {
	Device string
	Closed bool // also those that arrived late
	Limit  int  // newest first; 0 = 100
}

// Gaps lists gaps, newest first.
func (o *Operator) Gaps(ctx context.Context, f GapFilter) ([]Gap, error) {
	rows, err := o.pool.Query(ctx, listGaps, f.Device, f.Closed, limitOr100(f.Limit))
	if err != nil {
		return nil, fmt.Errorf("list gaps: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Gap])
}

// PossibleGaps lists recorded windows, newest first.
func (o *Operator) PossibleGaps(ctx context.Context, limit int) ([]PossibleGap, error) {
	rows, err := o.pool.Query(ctx, listPossibleGaps, limitOr100(limit))
	if err != nil {
		return nil, fmt.Errorf("list possible gaps: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[PossibleGap])
}

func limitOr100(n int) int {
	if n <= 0 {
		return 100
	}
	return n
}

// LaneStatus is what the database knows of one lane.
type LaneStatus struct {
	Lane         string     `json:"lane"`
	Owner        *string    `json:"owner"`
	Term         int64      `json:"term"`
	LeaseSeconds *float64   `json:"lease_seconds"` // until the lease ends; negative = it has
	Batch        int64      `json:"batch"`
	Unconfirmed  int64      `json:"unconfirmed"` // committed, and perhaps not acknowledged
	CommittedAt  *time.Time `json:"committed_at"`
	SessionSeen  bool       `json:"session_seen"`
	Filters      *string    `json:"filters"`
	Applied      int64      `json:"applied"`
	Duplicate    int64      `json:"duplicate"`
	Late         int64      `json:"late"`
	Coalesced    int64      `json:"coalesced"`
	Discarded    int64      `json:"discarded"`
	Ignored      int64      `json:"ignored"`
	Quarantined  int64      `json:"quarantined"`
	Dropped      int64      `json:"broker_drop_windows"` // recorded windows in which its broker says it dropped messages
}

// Status is the ingest side of a cell, from the database alone.
type Status struct {
	Lanes        []LaneStatus `json:"lanes"`
	BacklogBytes int64        `json:"outbox_backlog_bytes"` // unpublished, estimated
	OpenGaps     int64        `json:"open_gaps"`
	Undecided    int64        `json:"undecided_rejects"`
	Overflow     int64        `json:"rejects_beyond_caps"` // counted, not stored
	Owed         int64        `json:"owed_streams"`
}

// Status reads it in one snapshot.
func (o *Operator) Status(ctx context.Context) (Status, error) {
	var s Status
	tx, err := o.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return s, fmt.Errorf("read status: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // read only
	rows, err := tx.Query(ctx, listLanes, tailEntrySize)
	if err == nil {
		s.Lanes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LaneStatus])
	}
	if err == nil {
		err = tx.QueryRow(ctx, readBacklog).Scan(&s.BacklogBytes)
	}
	if err == nil {
		err = tx.QueryRow(ctx, readTotals).Scan(&s.OpenGaps, &s.Undecided, &s.Overflow, &s.Owed)
	}
	if err != nil {
		return s, fmt.Errorf("read status: %w", err)
	}
	return s, nil
}

// validLevel is the rule for every id.
func validLevel(id string) bool {
	return len(id) <= 128 && validName(id)
}

// IsUnknown says whether err means that the named device, stream or reject is not there.
func IsUnknown(err error) bool {
	return errors.Is(err, ErrUnknownDevice) || errors.Is(err, ErrUnknownReject)
}
