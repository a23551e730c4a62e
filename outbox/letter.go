package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The states of a row in outbox_dead.
const (
	LetterDead      = "dead"      // given up; nobody has decided yet
	LetterHeld      = "held"      // parked behind a dead row of its key
	LetterReleasing = "releasing" // decided; its bucket's owner carries it out
	LetterReplayed  = "replayed"  // sent after all
	LetterDiscarded = "discarded" // given up for good
	LetterPublished = "published" // was held, went out after its head was decided
)

// Letter is a row of outbox_dead without its payload.
type Letter struct {
	Position      int64      `json:"position"`
	Bucket        int16      `json:"bucket"`
	MessageID     uuid.UUID  `json:"message_id"`
	AggregateType string     `json:"aggregate_type"`
	AggregateID   string     `json:"aggregate_id"`
	EventType     string     `json:"event_type"`
	SchemaVersion int16      `json:"schema_version"`
	Stream        string     `json:"stream"`
	Epoch         int64      `json:"epoch"`
	Sequence      int64      `json:"sequence"`
	Source        string     `json:"source"`
	Traceparent   *string    `json:"traceparent"`
	CorrelationID *string    `json:"correlation_id"`
	CausationID   *string    `json:"causation_id"`
	PayloadBytes  int        `json:"payload_bytes"`
	PayloadSHA256 string     `json:"payload_sha256"`
	OccurredAt    *time.Time `json:"occurred_at"`
	CreatedAt     time.Time  `json:"created_at"`
	State         string     `json:"state"`
	Parks         bool       `json:"parks"` // later rows of its key wait for the decision
	RowAttempts   int        `json:"row_attempts"`
	ErrorCode     string     `json:"error_code"`
	Error         string     `json:"error"`
	FailedAt      time.Time  `json:"failed_at"`
	DecidedBy     *string    `json:"decided_by"`
	DecidedAt     *time.Time `json:"decided_at"`
	Decision      *string    `json:"decision"`
}

func (l *Letter) fields() []any {
	return []any{
		&l.Position, &l.Bucket, &l.MessageID, &l.AggregateType, &l.AggregateID, &l.EventType, &l.SchemaVersion, &l.Stream, &l.Epoch, &l.Sequence, &l.Source,
		&l.Traceparent, &l.CorrelationID, &l.CausationID, &l.PayloadBytes, &l.PayloadSHA256, &l.OccurredAt, &l.CreatedAt, &l.State, &l.Parks,
		&l.RowAttempts, &l.ErrorCode, &l.Error, &l.FailedAt, &l.DecidedBy, &l.DecidedAt, &l.Decision,
	}
}

// LetterFilter chooses letters. The zero value chooses all that wait for somebody: dead, held and releasing.
type LetterFilter struct {
	States      []string  `json:"states,omitempty"`
	AggregateID string    `json:"aggregate_id,omitempty"`
	ErrorCode   string    `json:"error_code,omitempty"`
	Since       time.Time `json:"since,omitzero"` // failed at or after
	Until       time.Time `json:"until,omitzero"` // failed before
	Positions   []int64   `json:"positions,omitempty"`
	Limit       int       `json:"limit"` // default 1000
}

// session is what the operator's functions need: a connection or a transaction.
type session interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Letters returns the letters that f chooses, by bucket, key and position.
func Letters(ctx context.Context, db session, f LetterFilter) ([]Letter, error) {
	states := f.States
	if len(states) == 0 {
		states = []string{LetterDead, LetterHeld, LetterReleasing}
	}
	rows, err := db.Query(ctx, selectLetters, states, f.AggregateID, f.ErrorCode, instantOrNil(f.Since), instantOrNil(f.Until), f.Positions, or(f.Limit, 1000))
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Letter, error) {
		var l Letter
		err := row.Scan(l.fields()...)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	return letters, nil
}

func instantOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// ErrNoLetter is a position at which no dead letter lies.
var ErrNoLetter = errors.New("no dead letter has this position")

// LetterAt returns one letter, whatever its state, with its payload.
func LetterAt(ctx context.Context, db session, position int64) (Letter, []byte, error) {
	all := []string{LetterDead, LetterHeld, LetterReleasing, LetterReplayed, LetterDiscarded, LetterPublished}
	letters, err := Letters(ctx, db, LetterFilter{States: all, Positions: []int64{position}})
	if err != nil {
		return Letter{}, nil, err
	}
	if len(letters) == 0 {
		return Letter{}, nil, fmt.Errorf("position %d: %w", position, ErrNoLetter)
	}
	var payload []byte
	if err := db.QueryRow(ctx, selectPayload, position).Scan(&payload); err != nil {
		return Letter{}, nil, fmt.Errorf("read payload of position %d: %w", position, err)
	}
	return letters[0], payload, nil
}

// Decision is who decides, and why. Both are required; they go into the audit.
type Decision struct {
	By     string
	Reason string
}

func (d Decision) validate() error {
	if d.By == "" || d.Reason == "" {
		return errors.New("a decision needs who decides and a reason")
	}
	return nil
}

// Discard gives dead letters up for good. All of positions must be dead and undecided, else nothing is changed. What is
// parked behind one of them is published by its bucket's owner. Run it in a transaction.
func Discard(ctx context.Context, tx pgx.Tx, positions []int64, d Decision) error {
	if err := d.validate(); err != nil {
		return fmt.Errorf("discard dead letters: %w", err)
	}
	rows, err := tx.Query(ctx, discardLetters, positions, d.By)
	if err != nil {
		return fmt.Errorf("discard dead letters: %w", err)
	}
	done, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("discard dead letters: %w", err)
	}
	for _, p := range positions {
		if !slices.Contains(done, p) {
			return fmt.Errorf("discard position %d: it is not an undecided dead letter", p)
		}
		if err := audit(ctx, tx, d, "discard", fmt.Sprintf("outbox_dead %d", p), nil); err != nil {
			return err
		}
	}
	return nil
}

func audit(ctx context.Context, db session, d Decision, action, subject string, detail map[string]any) error {
	if detail == nil {
		detail = map[string]any{}
	}
	if _, err := db.Exec(ctx, insertAudit, d.By, action, subject, d.Reason, detail); err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	return nil
}
