package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/schema"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

func newRebaseCommand() *cobra.Command {
	cfg := newConfig()
	var flags decisionFlags
	var opts rebaseOptions
	cmd := &cobra.Command{
		Use:   "rebase",
		Short: "Start a new epoch after the database was restored or lost commits",
		Long: `Start a new epoch: the database is the truth from now on, whatever the topic says. Needed when the tail check has halted
buckets (the topic holds events that the database has lost), after a restored backup, a failover with loss, or to take
over a hub from another cell. Without --yes it only shows the plan.

In one transaction that holds every bucket's lock it takes an epoch above any on the topic, supersedes what was not
published of the old epoch, restates every stream from device_state, and clears the halts. Ingest waits meanwhile (about
10 s for 100,000 streams). Consumers accept the new epoch and count what is missing.

With --new-topic the cell goes on in another topic, the only way out when a topic's partition count was changed. Stop the
relays first, and let the consumers finish the old topic before they read the new one.

The URL must be that of the schema's owner, as for migrate.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.yes && flags.reason == "" {
				return ops.UsageError(errors.New("--reason must be given with --yes"))
			}
			return rebase(cmd, cfg, flags, opts)
		},
	}
	cfg.flags(cmd, &cfg.Database, &cfg.Kafka)
	flags.add(cmd)
	jsonFlag(cmd, &opts.json)
	cmd.Flags().BoolVar(&opts.yes, "yes", false, "do it")
	cmd.Flags().StringVar(&opts.newTopic, "new-topic", "", "go on in this topic; it is made when it is missing")
	cmd.Flags().IntVar(&opts.newPartitions, "new-topic-partitions", 0, "its partitions, a divisor of the buckets; 0 = as many as recorded")
	cmd.Flags().DurationVar(&opts.lockTimeout, "lock-timeout", 30*time.Second, "wait for writers at most this long")
	return cmd
}

type rebaseOptions struct {
	yes, json     bool
	newTopic      string
	newPartitions int
	lockTimeout   time.Duration
}

// target is where the cell publishes after the rebase.
func (o rebaseOptions) target(s schema.Settings) schema.Settings {
	if o.newTopic != "" {
		s.Topic = o.newTopic
	}
	if o.newPartitions != 0 {
		s.TopicPartitions = o.newPartitions
	}
	return s
}

func rebase(cmd *cobra.Command, cfg *config, flags decisionFlags, opts rebaseOptions) error {
	if err := cfg.load(cmd); err != nil {
		return err
	}
	kafka, err := cfg.kafka().Options()
	if err != nil {
		return refuse(err)
	}
	ctx := cmd.Context()
	conn, err := ops.OpenConn(ctx, cfg.URL, "", "hubstate-rebase", map[string]string{
		"TimeZone": "UTC", "synchronous_commit": "on", "lock_timeout": opts.lockTimeout.String(),
	})
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	settings, err := cfg.checkSchema(ctx, cmd, conn)
	if err != nil {
		return err
	}
	target := opts.target(settings)
	tails, err := readTarget(ctx, cfg, kafka, target, target == settings || opts.yes)
	if err != nil {
		return fmt.Errorf("%w; rebase must know what the topic holds", err)
	}
	r := rebaser{conn: conn, settings: settings, target: target, tails: tails, decision: outbox.Decision{By: flags.actor, Reason: flags.reason}}
	plan, err := r.run(ctx, opts.yes)
	if err != nil {
		return err
	}
	if opts.json {
		return printJSON(cmd.OutOrStdout(), plan)
	}
	plan.print(cmd.OutOrStdout())
	return nil
}

// readTarget reads what the topic holds of this cell. A new topic is made first; a dry run takes a new topic to be empty.
func readTarget(ctx context.Context, cfg *config, kafka []kgo.Opt, target schema.Settings, read bool) (map[int16]outbox.Tail, error) {
	if err := target.Validate(); err != nil {
		return nil, refuse(err)
	}
	if !read {
		return nil, nil
	}
	if _, err := ensureTopic(ctx, cfg, target); err != nil {
		return nil, err
	}
	return outbox.ReadTails(ctx, kafka, topicRef(target))
}

func topicRef(s schema.Settings) outbox.TopicRef {
	return outbox.TopicRef{Topic: s.Topic, Cell: s.Cell, Partitions: s.TopicPartitions, Buckets: s.Buckets}
}

// rebasePlan is `relay rebase --json`; docs/cli-json.md is its contract.
type rebasePlan struct {
	Version    int            `json:"version"`
	Done       bool           `json:"done"` // false: dry run
	Cell       string         `json:"cell"`
	Topic      string         `json:"topic"`
	Partitions int            `json:"topic_partitions"`
	OldEpoch   int64          `json:"old_epoch"`
	NewEpoch   int64          `json:"new_epoch"`
	Streams    int64          `json:"streams"`
	Restated   int64          `json:"restated"`   // streams that have emitted before
	Superseded int64          `json:"superseded"` // committed rows that will never be published
	Discarded  int64          `json:"discarded"`  // rows parked behind a dead one
	LiveRelays int64          `json:"live_relays"`
	Buckets    []bucketRebase `json:"buckets"` // those in which something changes beside the epoch
	ends       []bucketEnd
}

type bucketRebase struct {
	Bucket        int16   `json:"bucket"`
	Cursor        int64   `json:"cursor"`
	NewCursor     int64   `json:"new_cursor"`
	DatabaseEnd   int64   `json:"database_end"`
	TopicPosition *int64  `json:"topic_position"`
	Superseded    int64   `json:"superseded"`
	LostHere      bool    `json:"lost_here"` // the topic holds events above everything the database knows
	Halted        *string `json:"halted"`
}

func (p *rebasePlan) print(out io.Writer) {
	fmt.Fprintf(out, "cell %s: epoch %d → %d on topic %s (%d partitions)\n", p.Cell, p.OldEpoch, p.NewEpoch, p.Topic, p.Partitions)
	fmt.Fprintf(out, "streams     %d, of which %d are restated\n", p.Streams, p.Restated)
	fmt.Fprintf(out, "superseded  %d committed events that will never be published\n", p.Superseded)
	if p.Discarded > 0 {
		fmt.Fprintf(out, "discarded   %d events parked behind a dead one\n", p.Discarded)
	}
	if p.LiveRelays > 0 {
		fmt.Fprintf(out, "relays      %d live; they lose their buckets, claim them again and go on\n", p.LiveRelays)
	}
	if len(p.Buckets) > 0 {
		fmt.Fprintln(out)
		t := newTable(out, "BUCKET", "CURSOR", "NEW CURSOR", "DATABASE END", "TOPIC TAIL", "SUPERSEDED", "LOST HERE", "HALTED")
		for i := range p.Buckets {
			b := &p.Buckets[i]
			t.row(b.Bucket, b.Cursor, b.NewCursor, b.DatabaseEnd, number(b.TopicPosition), b.Superseded, yes(b.LostHere), text(b.Halted))
		}
		_ = t.Flush()
	}
	if !p.Done {
		fmt.Fprintln(out, "\ndry run: nothing was changed; repeat with --yes --reason …")
	}
}

func number(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// rebaser does one rebase. tails were read before: an owner that still publishes rows of the old epoch meanwhile only
// adds what every gate drops after the new one.
type rebaser struct {
	conn     *pgx.Conn
	settings schema.Settings
	target   schema.Settings // differs in topic and partitions, when the cell moves to another topic
	tails    map[int16]outbox.Tail
	decision outbox.Decision
}

func (r *rebaser) run(ctx context.Context, do bool) (*rebasePlan, error) {
	if r.decision.By == "" {
		if err := r.conn.QueryRow(ctx, selectLogin).Scan(&r.decision.By); err != nil {
			return nil, fmt.Errorf("rebase: %w", err)
		}
	}
	if !do {
		var plan *rebasePlan
		err := pgx.BeginTxFunc(ctx, r.conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
			plan, err = r.plan(ctx, tx)
			return err
		})
		return plan, err
	}
	// The partition for now must exist before the transaction: making one inside would hold its locks to the end.
	if _, err := r.conn.Exec(ctx, ensurePartition, 0); err != nil {
		return nil, fmt.Errorf("rebase: make partition: %w", err)
	}
	var plan *rebasePlan
	err := pgx.BeginTxFunc(ctx, r.conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, lockAllBuckets, outbox.LockClass, r.settings.Buckets); err != nil {
			return fmt.Errorf("lock all buckets: %w", err)
		}
		if plan, err = r.plan(ctx, tx); err != nil {
			return err
		}
		if r.target != r.settings && plan.LiveRelays > 0 {
			return fmt.Errorf("%s still publish to the old topic: stop them first", plural(plan.LiveRelays, "relay"))
		}
		return r.apply(ctx, tx, plan)
	})
	if err != nil {
		return nil, fmt.Errorf("rebase: %w", err)
	}
	plan.Done = true
	return plan, nil
}

// bucketEnd is what database and topic know of a bucket.
type bucketEnd struct {
	bucket   int16
	cursor   int64
	cursorID [16]byte
	halted   *string
	end      int64
	endID    [16]byte
	pending  int64
	tail     outbox.Tail // position 0 = nothing of this bucket on the topic
}

// next is the new cursor: behind everything that either side knows, with the message id that lies there, so that the
// tail check of the next owner finds what it expects.
func (e *bucketEnd) next() (position int64, id [16]byte, onTopic bool) {
	position, id = e.cursor, e.cursorID
	if e.end > position {
		position, id = e.end, e.endID
	}
	if e.tail.Position >= position && e.tail.Position > 0 {
		return e.tail.Position, e.tail.MessageID, true
	}
	return position, id, false
}

func (r *rebaser) plan(ctx context.Context, tx pgx.Tx) (*rebasePlan, error) {
	p := &rebasePlan{Version: 1, Cell: r.settings.Cell, Topic: r.target.Topic, Partitions: r.target.TopicPartitions}
	var now int64
	if err := tx.QueryRow(ctx, selectEpoch).Scan(&p.OldEpoch, &now); err != nil {
		return nil, fmt.Errorf("read epoch: %w", err)
	}
	p.NewEpoch = max(p.OldEpoch+1, now)
	for _, tail := range r.tails {
		p.NewEpoch = max(p.NewEpoch, tail.Epoch+1)
	}
	if err := tx.QueryRow(ctx, countStreams).Scan(&p.Streams, &p.Restated); err != nil {
		return nil, fmt.Errorf("count streams: %w", err)
	}
	if err := tx.QueryRow(ctx, countParked).Scan(&p.Discarded); err != nil {
		return nil, fmt.Errorf("count parked rows: %w", err)
	}
	if err := tx.QueryRow(ctx, countLive).Scan(&p.LiveRelays); err != nil {
		return nil, fmt.Errorf("count relays: %w", err)
	}
	var err error
	if p.ends, err = readEnds(ctx, tx, r.tails); err != nil {
		return nil, err
	}
	for i := range p.ends {
		p.add(&p.ends[i])
	}
	return p, nil
}

func (p *rebasePlan) add(e *bucketEnd) {
	p.Superseded += e.pending
	position, _, _ := e.next()
	b := bucketRebase{Bucket: e.bucket, Cursor: e.cursor, NewCursor: position, DatabaseEnd: e.end, Superseded: e.pending, Halted: e.halted}
	if e.tail.Position > 0 {
		b.TopicPosition = &e.tail.Position
	}
	b.LostHere = e.tail.Position > max(e.end, e.cursor)
	if position != e.cursor || e.halted != nil {
		p.Buckets = append(p.Buckets, b)
	}
}

func readEnds(ctx context.Context, tx pgx.Tx, tails map[int16]outbox.Tail) ([]bucketEnd, error) {
	rows, err := tx.Query(ctx, selectEnds)
	if err != nil {
		return nil, fmt.Errorf("read ends of buckets: %w", err)
	}
	ends, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (bucketEnd, error) {
		var e bucketEnd
		var cursorID, endID *[16]byte
		err := row.Scan(&e.bucket, &e.cursor, &cursorID, &e.halted, &e.end, &endID, &e.pending)
		if cursorID != nil {
			e.cursorID = *cursorID
		}
		if endID != nil {
			e.endID = *endID
		}
		e.tail = tails[e.bucket]
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read ends of buckets: %w", err)
	}
	return ends, nil
}
