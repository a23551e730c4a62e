package outbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// What the gate of a consumer that has seen everything published does with a replayed event.
const (
	ForecastApplied = "applied" // nothing newer of the stream was published
	ForecastDropped = "dropped" // something newer was: the gate calls it late
	ForecastParked  = "parked"  // later events wait behind it: the bucket's owner publishes it before them, so it applies
)

// ReplayPlan is exactly what a replay will send. It is made and stored by PlanReplay, approved by somebody else, and run.
type ReplayPlan struct {
	ID            uuid.UUID    `json:"id"`
	Digest        string       `json:"digest"` // sha256 over the items in order
	Filter        LetterFilter `json:"filter"`
	Count         int          `json:"items_count"`
	Reason        string       `json:"reason"`
	State         string       `json:"state"` // planned, approved, running, done
	PlannedBy     string       `json:"planned_by"`
	PlannedLogin  string       `json:"planned_login"`
	PlannedAt     time.Time    `json:"planned_at"`
	ApprovedBy    *string      `json:"approved_by"`
	ApprovedLogin *string      `json:"approved_login"`
	ApprovedAt    *time.Time   `json:"approved_at"`
	RunBy         *string      `json:"run_by"`
	StartedAt     *time.Time   `json:"started_at"`
	FinishedAt    *time.Time   `json:"finished_at"`
	Items         []ReplayItem `json:"items,omitempty"`
}

// ReplayItem is one event of a plan, in the order of sending: by bucket, key and position.
type ReplayItem struct {
	Ordinal       int        `json:"ordinal"`
	Position      int64      `json:"position"`
	MessageID     uuid.UUID  `json:"message_id"`
	Bucket        int16      `json:"bucket"`
	AggregateID   string     `json:"aggregate_id"`
	Stream        string     `json:"stream"`
	Epoch         int64      `json:"epoch"`
	Sequence      int64      `json:"sequence"`
	ErrorCode     string     `json:"error_code"`
	State         string     `json:"state"` // of the letter now
	Parks         bool       `json:"parks"`
	PayloadSHA256 string     `json:"payload_sha256"`
	Forecast      string     `json:"forecast"`
	Outcome       *string    `json:"outcome"` // sent, releasing, changed, failed, skipped; null = not yet
	Error         *string    `json:"error"`
	At            *time.Time `json:"at"`

	newest []int64 // epoch and sequence of the newest published event of the stream, when planned
}

// Newest is the (epoch, sequence) of the newest published event of the stream when the plan was made; ok is false when
// none is known, and for plans that were read back.
func (i *ReplayItem) Newest() (epoch, sequence int64, ok bool) {
	if len(i.newest) < 2 {
		return 0, 0, false
	}
	return i.newest[0], i.newest[1], true
}

// ErrNothingToReplay is a plan without items.
var ErrNothingToReplay = errors.New("no undecided dead letter matches")

// PlanReplay chooses dead letters, forecasts what consumers will do with each, stores the plan and sends nothing. Held
// letters are never planned: they follow their head. Run it in a transaction.
func PlanReplay(ctx context.Context, tx pgx.Tx, f LetterFilter, d Decision) (*ReplayPlan, error) {
	if err := d.validate(); err != nil {
		return nil, fmt.Errorf("plan replay: %w", err)
	}
	f.States = []string{LetterDead}
	letters, err := Letters(ctx, tx, f)
	if err != nil {
		return nil, err
	}
	if len(letters) == 0 {
		return nil, ErrNothingToReplay
	}
	plan := &ReplayPlan{Filter: f, Count: len(letters), Reason: d.Reason, PlannedBy: d.By, State: "planned"}
	for i := range letters {
		item, err := forecast(ctx, tx, &letters[i])
		if err != nil {
			return nil, err
		}
		plan.Items = append(plan.Items, item)
	}
	slices.SortStableFunc(plan.Items, byKey)
	for i := range plan.Items {
		plan.Items[i].Ordinal = i + 1
	}
	plan.Digest = digest(plan.Items)
	return plan, plan.store(ctx, tx, d)
}

func byKey(a, b ReplayItem) int {
	return cmp.Or(cmp.Compare(a.Bucket, b.Bucket), strings.Compare(a.AggregateID, b.AggregateID), cmp.Compare(a.Position, b.Position))
}

func forecast(ctx context.Context, db session, l *Letter) (ReplayItem, error) {
	item := ReplayItem{
		Position: l.Position, MessageID: l.MessageID, Bucket: l.Bucket, AggregateID: l.AggregateID, Stream: l.Stream, Epoch: l.Epoch,
		Sequence: l.Sequence, ErrorCode: l.ErrorCode, State: l.State, Parks: l.Parks, PayloadSHA256: l.PayloadSHA256,
	}
	var epoch, sequence int64
	err := db.QueryRow(ctx, selectNewest, l.Bucket, l.AggregateID, l.Stream, l.Position).Scan(&epoch, &sequence)
	if errors.Is(err, pgx.ErrNoRows) {
		err = db.QueryRow(ctx, selectNewestSealed, l.AggregateID, l.Stream, l.CreatedAt, l.Position).Scan(&epoch, &sequence)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		item.Forecast = ForecastApplied
	case err != nil:
		return item, fmt.Errorf("forecast position %d: %w", l.Position, err)
	default:
		item.Forecast, item.newest = ForecastDropped, []int64{epoch, sequence}
	}
	if l.Parks {
		item.Forecast = ForecastParked
	}
	return item, nil
}

// digest says everything that an approver approves: which events, in which order, with which bytes, sent by whom.
func digest(items []ReplayItem) string {
	h := sha256.New()
	for i := range items {
		it := &items[i]
		fmt.Fprintf(h, "%d %d %s %d %q %q %d %d %s %t\n", it.Ordinal, it.Position, it.MessageID, it.Bucket, it.AggregateID, it.Stream, it.Epoch, it.Sequence, it.PayloadSHA256, it.Parks)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (p *ReplayPlan) store(ctx context.Context, tx pgx.Tx, d Decision) error {
	err := tx.QueryRow(ctx, insertPlan, p.Digest, p.Filter, p.Count, p.Reason, p.PlannedBy).Scan(&p.ID, &p.PlannedAt, &p.PlannedLogin)
	if err != nil {
		return fmt.Errorf("store replay plan: %w", err)
	}
	var ordinals []int32
	var positions []int64
	var forecasts []string
	for i := range p.Items {
		ordinals = append(ordinals, int32(p.Items[i].Ordinal))
		positions = append(positions, p.Items[i].Position)
		forecasts = append(forecasts, p.Items[i].Forecast)
	}
	if _, err := tx.Exec(ctx, insertItems, p.ID, ordinals, positions, forecasts); err != nil {
		return fmt.Errorf("store items of replay plan: %w", err)
	}
	return p.audit(ctx, tx, d, "replay.plan")
}

func (p *ReplayPlan) audit(ctx context.Context, db session, d Decision, action string) error {
	return audit(ctx, db, d, action, "replay_plan "+p.ID.String(), map[string]any{"digest": p.Digest, "items": p.Count})
}

// ErrNoPlan is a plan id that nobody has made.
var ErrNoPlan = errors.New("no replay plan has this id")

// ReadReplayPlan returns a plan with its items as they stand now.
func ReadReplayPlan(ctx context.Context, db session, id uuid.UUID) (*ReplayPlan, error) {
	rows, err := db.Query(ctx, selectPlan, id)
	if err != nil {
		return nil, fmt.Errorf("read replay plan: %w", err)
	}
	p, err := pgx.CollectExactlyOneRow(rows, scanPlan)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%s: %w", id, ErrNoPlan)
	}
	if err != nil {
		return nil, fmt.Errorf("read replay plan: %w", err)
	}
	p.Items, err = readItems(ctx, db, id)
	return &p, err
}

// ReplayPlans returns the newest plans, without their items.
func ReplayPlans(ctx context.Context, db session, limit int) ([]ReplayPlan, error) {
	rows, err := db.Query(ctx, selectPlans, limit)
	if err != nil {
		return nil, fmt.Errorf("read replay plans: %w", err)
	}
	plans, err := pgx.CollectRows(rows, scanPlan)
	if err != nil {
		return nil, fmt.Errorf("read replay plans: %w", err)
	}
	return plans, nil
}

func scanPlan(row pgx.CollectableRow) (p ReplayPlan, err error) {
	var filter []byte
	err = row.Scan(&p.ID, &p.Digest, &filter, &p.Count, &p.Reason, &p.State, &p.PlannedBy, &p.PlannedLogin, &p.PlannedAt,
		&p.ApprovedBy, &p.ApprovedLogin, &p.ApprovedAt, &p.RunBy, &p.StartedAt, &p.FinishedAt)
	if err == nil {
		err = json.Unmarshal(filter, &p.Filter)
	}
	return p, err
}

func readItems(ctx context.Context, db session, id uuid.UUID) ([]ReplayItem, error) {
	rows, err := db.Query(ctx, selectItems, id)
	if err != nil {
		return nil, fmt.Errorf("read items of replay plan: %w", err)
	}
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ReplayItem, error) {
		var i ReplayItem
		var key, stream, code, state, sha *string // null when the letter is gone
		var bucket *int16
		var epoch, sequence *int64
		var parks *bool
		var message *uuid.UUID
		err := row.Scan(&i.Ordinal, &i.Position, &message, &bucket, &key, &stream, &epoch, &sequence, &code, &state, &parks, &sha, &i.Forecast, &i.Outcome, &i.Error, &i.At)
		i.MessageID, i.Bucket, i.AggregateID, i.Stream = value(message), value(bucket), value(key), value(stream)
		i.Epoch, i.Sequence, i.ErrorCode, i.Parks, i.PayloadSHA256 = value(epoch), value(sequence), value(code), value(parks), value(sha)
		i.State = or(value(state), "gone")
		return i, err
	})
	if err != nil {
		return nil, fmt.Errorf("read items of replay plan: %w", err)
	}
	return items, nil
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// shortestDigest is how much of a digest an approver must repeat.
const shortestDigest = 12

// ApproveReplay records that somebody else than the planner agrees to exactly the plan with this digest, of which at
// least 12 characters must be given. It fails when any of the letters has changed since. Run it in a transaction.
func ApproveReplay(ctx context.Context, tx pgx.Tx, id uuid.UUID, repeated string, d Decision) (*ReplayPlan, error) {
	if err := d.validate(); err != nil {
		return nil, fmt.Errorf("approve replay: %w", err)
	}
	p, err := ReadReplayPlan(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	switch {
	case p.State != "planned":
		return nil, fmt.Errorf("approve replay: plan %s is %s already", id, p.State)
	case p.PlannedBy == d.By:
		return nil, fmt.Errorf("approve replay: %s planned it, somebody else must approve it", d.By)
	case len(repeated) < shortestDigest || !strings.HasPrefix(p.Digest, repeated):
		return nil, fmt.Errorf("approve replay: the digest is not that of plan %s; look at it again with `relay replay show %s`", id, id)
	}
	if err := p.unchanged(); err != nil {
		return nil, fmt.Errorf("approve replay: %w", err)
	}
	if _, err := tx.Exec(ctx, approvePlan, id, d.By); err != nil {
		return nil, fmt.Errorf("approve replay: %w", err)
	}
	return p, p.audit(ctx, tx, d, "replay.approve")
}

func (p *ReplayPlan) unchanged() error {
	for i := range p.Items {
		if it := &p.Items[i]; it.State != LetterDead {
			return fmt.Errorf("position %d is %s by now: make a new plan", it.Position, it.State)
		}
	}
	if digest(p.Items) != p.Digest {
		return errors.New("the letters are not what they were when the plan was made: make a new plan")
	}
	return nil
}
