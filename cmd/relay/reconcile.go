package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// errDiffers ends `relay reconcile` with exit code 1 after its report was printed.
var errDiffers = errors.New("database and topic do not agree")

func newReconcileCommand() *cobra.Command {
	cfg := newConfig()
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare device states, outbox, cursors and the topic's tail",
		Long: `Compare what should agree and report what does not: the stored state of each stream with its newest outbox row, the
density of sequences, each bucket's cursor with the newest event of the bucket on the topic, and that event with the
stored state. It only reads. Exit code 1 when something differs. Events that are under way are not a difference.

Without kafka_brokers only the database is looked at.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.load(cmd); err != nil {
				return err
			}
			return reconcile(cmd, cfg, limit, asJSON)
		},
	}
	cfg.flags(cmd, &cfg.Database, &cfg.Kafka)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most this many differences of a kind")
	return cmd
}

func reconcile(cmd *cobra.Command, cfg *config, limit int, asJSON bool) error {
	ctx := cmd.Context()
	conn, err := cfg.reader(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	settings, err := cfg.checkSchema(ctx, cmd, conn)
	if err != nil {
		return err
	}
	var tails map[int16]outbox.Tail
	if len(cfg.Brokers) > 0 {
		kafka, err := cfg.kafka().Options()
		if err != nil {
			return refuse(err)
		}
		// Read before the database: what is published between the two is then known to the database.
		if tails, err = outbox.ReadTails(ctx, kafka, topicRef(settings)); err != nil {
			return err
		}
	}
	report := reconcileReport{Version: 1, Cell: settings.Cell, TopicRead: len(cfg.Brokers) > 0}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return report.read(ctx, tx, tails, limit)
	})
	if err != nil {
		return err
	}
	return report.finish(cmd.OutOrStdout(), asJSON)
}

// reconcileReport is `relay reconcile --json`; docs/cli-json.md is its contract.
type reconcileReport struct {
	Version    int               `json:"version"`
	Cell       string            `json:"cell"`
	Agree      bool              `json:"agree"`
	TopicRead  bool              `json:"topic_read"`
	Streams    []streamDiffers   `json:"streams"`
	Holes      []sequenceHole    `json:"holes"`
	Buckets    []bucketDiffers   `json:"buckets"`
	TopicAhead []topicAheadState `json:"topic_ahead"`
}

// streamDiffers is a stream whose state and newest outbox row do not name the same event; zero state = none stored.
type streamDiffers struct {
	Device        string `json:"device"`
	Stream        string `json:"stream"`
	Epoch         int64  `json:"outbox_epoch"`
	Sequence      int64  `json:"outbox_sequence"`
	StateEpoch    int64  `json:"state_epoch"`
	StateSequence int64  `json:"state_sequence"`
}

// sequenceHole is a stream of whose rows some are missing in the attached partitions.
type sequenceHole struct {
	Device string `json:"device"`
	Stream string `json:"stream"`
	Epoch  int64  `json:"epoch"`
	From   int64  `json:"from_sequence"`
	To     int64  `json:"to_sequence"`
	Rows   int64  `json:"rows"`
}

// bucketDiffers is a bucket whose newest event on the topic is not what the database knows.
type bucketDiffers struct {
	Bucket  int16       `json:"bucket"`
	Cursor  int64       `json:"cursor"`
	Halted  *string     `json:"halted"`
	Tail    outbox.Tail `json:"topic_tail"`
	Problem string      `json:"problem"`
}

// topicAheadState is a stream of which the topic holds a newer event than the stored state.
type topicAheadState struct {
	Tail          outbox.Tail `json:"topic_tail"`
	StateEpoch    int64       `json:"state_epoch"`
	StateSequence int64       `json:"state_sequence"`
}

func (r *reconcileReport) read(ctx context.Context, tx pgx.Tx, tails map[int16]outbox.Tail, limit int) error {
	rows, err := tx.Query(ctx, selectMismatches, limit)
	if err == nil {
		r.Streams, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d streamDiffers, err error) {
			var epoch, sequence *int64
			err = row.Scan(&d.Device, &d.Stream, &d.Epoch, &d.Sequence, &epoch, &sequence)
			d.StateEpoch, d.StateSequence = zero(epoch), zero(sequence)
			return d, err
		})
	}
	if err != nil {
		return fmt.Errorf("compare states with the outbox: %w", err)
	}
	rows, err = tx.Query(ctx, selectHoles, limit)
	if err == nil {
		r.Holes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h sequenceHole, err error) {
			err = row.Scan(&h.Device, &h.Stream, &h.Epoch, &h.From, &h.To, &h.Rows)
			return h, err
		})
	}
	if err != nil {
		return fmt.Errorf("look for holes: %w", err)
	}
	if err := r.readBuckets(ctx, tx, tails); err != nil {
		return err
	}
	return r.readStates(ctx, tx, tails)
}

func zero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func (r *reconcileReport) readBuckets(ctx context.Context, tx pgx.Tx, tails map[int16]outbox.Tail) error {
	if !r.TopicRead {
		return nil
	}
	ends, err := readEnds(ctx, tx, tails)
	if err != nil {
		return err
	}
	for i := range ends {
		problem, err := compareTail(ctx, tx, &ends[i])
		if err != nil {
			return fmt.Errorf("compare bucket %d with the topic: %w", ends[i].bucket, err)
		}
		if problem == "" && ends[i].halted != nil {
			problem = "halted"
		}
		if problem != "" {
			r.Buckets = append(r.Buckets, bucketDiffers{ends[i].bucket, ends[i].cursor, ends[i].halted, ends[i].tail, problem})
		}
	}
	return nil
}

// compareTail says what is wrong between a bucket and its newest event on the topic, "" when they agree.
func compareTail(ctx context.Context, tx pgx.Tx, e *bucketEnd) (string, error) {
	switch {
	case e.tail.Position == 0 && e.cursor == 0:
		return "", nil // nothing was published yet
	case e.tail.Position == 0:
		return "something was published, but nothing of this bucket is on the topic (retention, or the topic was made again)", nil
	case e.tail.Position == e.cursor:
		return compareID(e.cursorID, e.tail), nil
	}
	var id uuid.UUID
	err := tx.QueryRow(ctx, selectRowAt, e.bucket, e.tail.Position, e.tail.AggregateID).Scan(&id)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && e.tail.Position > e.cursor:
		return "the topic holds an event that the database does not know: the database has lost a past that was published", nil
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil // below the cursor, dropped or archived by now
	case err != nil:
		return "", err
	}
	return compareID(id, e.tail), nil
}

func compareID(id [16]byte, tail outbox.Tail) string {
	if id == [16]byte{} || id == tail.MessageID {
		return ""
	}
	return "the database has another message at the topic's position: it has lost a past that was published"
}

// readStates compares the newest event of each bucket on the topic with the stored state of its stream.
func (r *reconcileReport) readStates(ctx context.Context, tx pgx.Tx, tails map[int16]outbox.Tail) error {
	var all []outbox.Tail
	var devices, streams []string
	for _, t := range tails {
		all, devices, streams = append(all, t), append(devices, t.AggregateID), append(streams, t.Stream)
	}
	rows, err := tx.Query(ctx, selectStates, devices, streams)
	if err != nil {
		return fmt.Errorf("read states: %w", err)
	}
	states := make([][2]int64, len(all))
	var at int
	var state [2]int64
	if _, err := pgx.ForEachRow(rows, []any{&at, &state[0], &state[1]}, func() error { states[at-1] = state; return nil }); err != nil {
		return fmt.Errorf("read states: %w", err)
	}
	for i, t := range all {
		if slices.Compare(states[i][:], []int64{t.Epoch, t.Sequence}) < 0 {
			r.TopicAhead = append(r.TopicAhead, topicAheadState{t, states[i][0], states[i][1]})
		}
	}
	slices.SortFunc(r.TopicAhead, func(a, b topicAheadState) int { return strings.Compare(a.Tail.AggregateID, b.Tail.AggregateID) })
	return nil
}

func (r *reconcileReport) finish(out io.Writer, asJSON bool) error {
	r.Agree = len(r.Streams)+len(r.Holes)+len(r.Buckets)+len(r.TopicAhead) == 0
	var err error
	if asJSON {
		err = printJSON(out, r)
	} else {
		r.print(out)
	}
	if err == nil && !r.Agree {
		return errDiffers
	}
	return err
}

func (r *reconcileReport) print(out io.Writer) {
	if r.Agree {
		fmt.Fprintf(out, "cell %s: states, outbox%s agree\n", r.Cell, map[bool]string{true: ", cursors and topic"}[r.TopicRead])
		return
	}
	for _, s := range r.Streams {
		fmt.Fprintf(out, "stream %s/%s: state says %d/%d, newest outbox row %d/%d\n", s.Device, s.Stream, s.StateEpoch, s.StateSequence, s.Epoch, s.Sequence)
	}
	for _, h := range r.Holes {
		fmt.Fprintf(out, "stream %s/%s: %d rows for sequences %d..%d of epoch %d\n", h.Device, h.Stream, h.Rows, h.From, h.To, h.Epoch)
	}
	for _, b := range r.Buckets {
		fmt.Fprintf(out, "bucket %d: cursor %d, topic position %d: %s\n", b.Bucket, b.Cursor, b.Tail.Position, b.Problem)
	}
	for _, a := range r.TopicAhead {
		fmt.Fprintf(out, "stream %s/%s: the topic has %d/%d, the state says %d/%d\n", a.Tail.AggregateID, a.Tail.Stream, a.Tail.Epoch, a.Tail.Sequence, a.StateEpoch, a.StateSequence)
	}
}
