package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// ErrUnknownReject is returned when no reject has the id.
var ErrUnknownReject = errors.New("no such reject")

// retryLane is the lane under which operators feed stored reports again; its row counts them.
const retryLane = "operator.retry"

// Reject is a stored report that could not be applied.
type Reject struct {
	ID         int64      `json:"id"`
	Lane       string     `json:"lane"`
	Topic      string     `json:"topic"`
	Device     *string    `json:"device_id"`
	Stream     *string    `json:"stream"`
	Reason     string     `json:"reason"`
	Detail     string     `json:"detail"`
	Bytes      int64      `json:"bytes"`
	Retained   bool       `json:"retained"`
	ReceivedAt time.Time  `json:"received_at"`
	DecidedBy  *string    `json:"decided_by"`
	DecidedAt  *time.Time `json:"decided_at"`
	Decision   *string    `json:"decision"`
}

// RejectFilter narrows Rejects. The zero value takes the undecided ones.
type RejectFilter struct {
	Device, Reason string
	Decided        bool // also decided ones
	Limit          int  // oldest first; 0 = 100
}

// Rejects lists rejects without their bytes, oldest first.
func (o *Operator) Rejects(ctx context.Context, f RejectFilter) ([]Reject, error) {
	rows, err := o.pool.Query(ctx, listRejects, f.Device, f.Reason, f.Decided, limitOr100(f.Limit))
	if err != nil {
		return nil, fmt.Errorf("list rejects: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Reject])
}

// Reject returns one reject and its bytes.
func (o *Operator) Reject(ctx context.Context, id int64) (Reject, []byte, error) {
	rows, err := o.pool.Query(ctx, readReject, id)
	if err != nil {
		return Reject{}, nil, fmt.Errorf("read reject %d: %w", id, err)
	}
	type row struct {
		Reject
		Payload []byte
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrUnknownReject
	}
	if err != nil {
		return Reject{}, nil, fmt.Errorf("read reject %d: %w", id, err)
	}
	return r.Reject, r.Payload, nil
}

// Discard decides that a reject is not to be applied.
func (o *Operator) Discard(ctx context.Context, id int64, reason string) error {
	return pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, decideRejects, []int64{id}, o.actor, "discarded")
		if err == nil && tag.RowsAffected() == 0 {
			err = ErrUnknownReject
		}
		if err == nil {
			_, err = tx.Exec(ctx, insertAudit, o.actor, "discard_reject", fmt.Sprint(id), reason, map[string]any{})
		}
		if err != nil {
			return fmt.Errorf("discard reject %d: %w", id, err)
		}
		return nil
	})
}

// Retried is what became of a reject that was fed again.
type Retried struct {
	ID     int64  `json:"id"`
	Device string `json:"device_id"`
	Stream string `json:"stream"`
	Class  string `json:"class"`
	Reason string `json:"reason,omitempty"` // why it was quarantined again
}

// Retry feeds the stored bytes of undecided rejects through the same path as a message, in order of their ids, with the
// profiles and limits of cfg and their own time of arrival. What is refused again becomes a new reject. Deciding the old
// one, applying the report and the audit are one transaction.
func (o *Operator) Retry(ctx context.Context, cfg Config, ids []int64, reason string) ([]Retried, error) {
	cfg.Instance, cfg.MQTTURL = o.actor, "mqtt://unused:1883"
	s, err := New(cfg, o.pool, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	s.buckets = o.buckets
	l := &lane{name: retryLane, owner: o.actor, ttl: s.cfg.Lease, pool: o.pool}
	ours, err := l.claim(ctx, false)
	if err != nil {
		return nil, err
	}
	if !ours {
		return nil, errors.New("another retry is running; try again when it has ended")
	}
	defer func() { _ = l.release(context.WithoutCancel(ctx)) }() // the lease ends by itself
	r := retry{operator: o, writer: newWriter(s.cfg, l, newQueue(1, 1), s), decoder: newDecoder(s.matcher, s.cfg.Limits(), s.cfg.Hub), reason: reason}
	var all []Retried
	for _, id := range ids {
		done, err := r.one(ctx, id)
		if err != nil {
			return all, err
		}
		all = append(all, done)
	}
	return all, nil
}

// retry feeds rejects one by one.
type retry struct {
	operator *Operator
	writer   *writer
	decoder  *decoder
	reason   string
}

func (r *retry) one(ctx context.Context, id int64) (Retried, error) {
	reject, payload, err := r.operator.Reject(ctx, id)
	if err != nil {
		return Retried{}, err
	}
	if reject.DecidedAt != nil {
		return Retried{}, fmt.Errorf("retry reject %d: it was decided already: %s by %s", id, *reject.Decision, *reject.DecidedBy)
	}
	g := newGeneration(1)
	g.end(errStopped) // nobody waits for an acknowledgement
	it := r.decoder.decode(g, publish{topic: []byte(reject.Topic), payload: payload, size: len(payload), retained: reject.Retained}, reject.ReceivedAt)
	r.writer.also = func(b *pgx.Batch) {
		b.Queue(decideRejects, []int64{id}, r.operator.actor, "retried")
		r.operator.audit("retry_reject", fmt.Sprint(id), r.reason).queue(b, nil)
	}
	items := []item{it}
	if err := r.writer.store(ctx, items); err != nil {
		return Retried{}, fmt.Errorf("retry reject %d: %w", id, err)
	}
	if ctx.Err() != nil {
		return Retried{}, ctx.Err()
	}
	return r.result(id, &items[0]), nil
}

func (r *retry) result(id int64, it *item) Retried {
	b := r.writer.batch
	done := Retried{ID: id, Device: it.report.Device, Stream: it.report.Stream, Class: b.class(0).String()}
	if b.class(0) == devicestate.Quarantined && len(b.rejects.reason) > 0 {
		done.Reason = b.rejects.reason[0] + ": " + b.rejects.detail[0]
	}
	return done
}
