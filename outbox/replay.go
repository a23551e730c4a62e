package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Replayer runs an approved plan: the original payload, key and message id, with ce_replay = the plan's id. It sends one
// event after the other, in the order of the plan, each in a transaction that holds the letter: what is sent is
// recorded, and a crash between the two repeats one event, which the gates drop.
type Replayer struct {
	Client     *kgo.Client // idempotent producer, manual partitioner; see ReplayOptions
	Topic      string
	Cell       string
	Partitions int
	Rate       Rate // default 100 records a second

	now   func() time.Time
	pause func(ctx context.Context, d time.Duration) error
}

// ReplayOptions are the options of a producer for a Replayer beside those of the connection.
func ReplayOptions() []kgo.Opt {
	return []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(30 * time.Second),
		// A replay that gives up must come back; that the event may be written all the same is what the gates are for.
		kgo.AllowIdempotentProduceCancellation(),
	}
}

// ReplayResult counts what became of the items of a plan, earlier runs included.
type ReplayResult struct {
	Sent      int `json:"sent"`
	Releasing int `json:"releasing"` // handed to the bucket's owner, which publishes it before what is parked behind it
	Changed   int `json:"changed"`   // decided otherwise since the approval: left alone
	Failed    int `json:"failed"`    // refused by the broker once more
	Skipped   int `json:"skipped"`   // behind a failed event of the same key
	Left      int `json:"left"`      // not tried yet
}

// Run sends what is left of the plan. An outage of Kafka ends it with an error and the rest left: run it again. An event
// that is refused stays dead, the later ones of its key are skipped, and other keys go on. conn must be a session of its
// own with the rights of hubstate_operator.
func (r *Replayer) Run(ctx context.Context, conn *pgx.Conn, id uuid.UUID, d Decision) (ReplayResult, error) {
	r.fill()
	p, err := r.start(ctx, conn, id, d)
	if err != nil {
		return ReplayResult{}, err
	}
	limiter := NewLimiter(r.Rate)
	failed := map[string]bool{}
	for i := range p.Items {
		it := &p.Items[i]
		if value(it.Outcome) == "failed" {
			failed[it.AggregateID] = true
		}
		if it.Outcome != nil {
			continue
		}
		if err := r.pause(ctx, limiter.Wait(r.now())); err != nil {
			return count(p.Items), err
		}
		size, err := r.item(ctx, conn, p, it, failed[it.AggregateID], d)
		if err != nil {
			return count(p.Items), fmt.Errorf("replay position %d: %w", it.Position, err)
		}
		failed[it.AggregateID] = failed[it.AggregateID] || value(it.Outcome) == "failed"
		limiter.Spend(r.now(), 1, size)
	}
	return count(p.Items), r.finish(ctx, conn, p, d)
}

func (r *Replayer) fill() {
	if r.Rate == (Rate{}) {
		r.Rate.Records = 100
	}
	if r.now == nil {
		r.now = time.Now
	}
	if r.pause == nil {
		r.pause = pause
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (r *Replayer) start(ctx context.Context, conn *pgx.Conn, id uuid.UUID, d Decision) (*ReplayPlan, error) {
	var alone bool
	if err := conn.QueryRow(ctx, lockPlan, id.String()).Scan(&alone); err != nil {
		return nil, fmt.Errorf("run replay: %w", err)
	}
	if !alone {
		return nil, fmt.Errorf("run replay: somebody else runs plan %s now", id)
	}
	p, err := ReadReplayPlan(ctx, conn, id)
	if err != nil {
		return nil, err
	}
	if p.State == "approved" {
		if err := p.unchanged(); err != nil {
			return nil, fmt.Errorf("run replay: %w", err)
		}
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, startPlan, id, d.By)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("plan %s is %s; only an approved one can be run", id, p.State)
		}
		return p.audit(ctx, tx, d, "replay.run")
	})
	if err != nil {
		return nil, fmt.Errorf("run replay: %w", err)
	}
	return p, nil
}

// item decides one letter: its row is locked from the look to the record of what became of it.
func (r *Replayer) item(ctx context.Context, conn *pgx.Conn, p *ReplayPlan, it *ReplayItem, behindFailed bool, d Decision) (size int, err error) {
	var outcome, reason string
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		l, payload, err := lockOne(ctx, tx, it.Position)
		if err != nil {
			return err
		}
		outcome, reason, err = r.send(ctx, p, it, l, payload, behindFailed)
		if err != nil {
			return err
		}
		size = len(payload)
		if state := decided(outcome); state != "" {
			if _, err := tx.Exec(ctx, decideLetter, it.Position, state, d.By, "replay "+p.ID.String()); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, recordOutcome, p.ID, it.Ordinal, outcome, reason)
		return err
	})
	if err != nil {
		return 0, err
	}
	it.Outcome, it.Error = &outcome, &reason
	return size, nil
}

func decided(outcome string) string {
	switch outcome {
	case "sent":
		return LetterReplayed
	case "releasing":
		return LetterReleasing
	}
	return ""
}

func lockOne(ctx context.Context, tx pgx.Tx, position int64) (l Letter, payload []byte, err error) {
	err = tx.QueryRow(ctx, lockLetter, position).Scan(append(l.fields(), &payload)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return Letter{State: "gone"}, nil, nil
	}
	return l, payload, err
}

// send publishes a letter unless it must not be. An outage is an error; everything else is an outcome.
func (r *Replayer) send(ctx context.Context, p *ReplayPlan, it *ReplayItem, l Letter, payload []byte, behindFailed bool) (outcome, reason string, err error) {
	switch {
	case l.State != LetterDead || l.PayloadSHA256 != it.PayloadSHA256:
		return "changed", "it is " + l.State + " by now", nil
	case l.Parks:
		return "releasing", "", nil
	case behindFailed:
		return "skipped", "an earlier event of its key failed", nil
	}
	record := replayRecord(&l, payload, r.Topic, r.Cell, r.Partitions, p.ID)
	err = r.Client.ProduceSync(ctx, record).FirstErr()
	if err == nil {
		return "sent", "", nil
	}
	if v := Classify(err); v.CostsRow() {
		return "failed", v.Code + ": " + err.Error(), nil
	}
	return "", "", err
}

func count(items []ReplayItem) ReplayResult {
	var n ReplayResult
	for i := range items {
		switch value(items[i].Outcome) {
		case "sent":
			n.Sent++
		case "releasing":
			n.Releasing++
		case "changed":
			n.Changed++
		case "failed":
			n.Failed++
		case "skipped":
			n.Skipped++
		default:
			n.Left++
		}
	}
	return n
}

func (r *Replayer) finish(ctx context.Context, conn *pgx.Conn, p *ReplayPlan, d Decision) error {
	n := count(p.Items)
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, finishPlan, p.ID); err != nil {
			return err
		}
		return audit(ctx, tx, d, "replay.done", "replay_plan "+p.ID.String(), map[string]any{
			"sent": n.Sent, "releasing": n.Releasing, "changed": n.Changed, "failed": n.Failed, "skipped": n.Skipped,
		})
	})
	if err != nil {
		return fmt.Errorf("finish replay: %w", err)
	}
	return nil
}
