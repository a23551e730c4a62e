package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hubstate/hubstate/internal/schema"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// statusOptions are the flags of `relay status`.
type statusOptions struct {
	json   bool
	all    bool
	limit  int64
	sample time.Duration
}

func newStatusCommand() *cobra.Command {
	cfg := newConfig()
	var opts statusOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show buckets, owners, backlog, rates and errors",
		Long: `Show who publishes what, how far behind it is, and why. It only reads, and works with any login that is a member of
one of the group roles. Without --all only buckets are listed in which something waits, fails or has no owner.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.load(cmd); err != nil {
				return err
			}
			return status(cmd, cfg, opts)
		},
	}
	cfg.flags(cmd, &cfg.Database)
	jsonFlag(cmd, &opts.json)
	cmd.Flags().BoolVar(&opts.all, "all", false, "list every bucket")
	cmd.Flags().Int64Var(&opts.limit, "count-limit", 10_000, "count the backlog of a bucket up to this many rows")
	cmd.Flags().DurationVar(&opts.sample, "sample", time.Second, "measure rates over this long; 0 = do not")
	return cmd
}

func status(cmd *cobra.Command, cfg *config, opts statusOptions) error {
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
	report, err := readStatus(ctx, conn, settings, opts)
	if err != nil {
		return err
	}
	if opts.json {
		return printJSON(cmd.OutOrStdout(), report)
	}
	return report.print(cmd.OutOrStdout(), opts.all)
}

// statusReport is `relay status --json`; docs/cli-json.md is its contract.
type statusReport struct {
	Version         int              `json:"version"`
	At              time.Time        `json:"at"`
	Cell            string           `json:"cell"`
	Topic           string           `json:"topic"`
	TopicPartitions int              `json:"topic_partitions"`
	Totals          statusTotals     `json:"totals"`
	Instances       []instanceStatus `json:"instances"`
	Dead            []deadCount      `json:"dead"`
	Buckets         []bucketStatus   `json:"buckets"`
}

type statusTotals struct {
	Buckets            int      `json:"buckets"`
	Unowned            int      `json:"unowned"`
	Halted             int      `json:"halted"`
	Failing            int      `json:"failing"`
	Pending            int64    `json:"pending"`
	PendingExact       bool     `json:"pending_exact"`
	OldestSeconds      *float64 `json:"oldest_unpublished_seconds"`
	OldestDevice       *string  `json:"oldest_unpublished_device"`
	OldestStream       *string  `json:"oldest_unpublished_stream"`
	Published          int64    `json:"published"`
	PublishedPerSecond *float64 `json:"published_per_second"`
}

type instanceStatus struct {
	Instance   string    `json:"instance"`
	Alive      bool      `json:"alive"`
	Buckets    int       `json:"buckets"`
	StartedAt  time.Time `json:"started_at"`
	LeaseUntil time.Time `json:"lease_until"`
}

type deadCount struct {
	State  string    `json:"state"`
	Code   string    `json:"error_code"`
	Rows   int64     `json:"rows"`
	Oldest time.Time `json:"oldest_failed_at"`
}

type bucketStatus struct {
	Bucket             int16      `json:"bucket"`
	Partition          int32      `json:"kafka_partition"`
	Owner              *string    `json:"owner"`
	OwnerAlive         bool       `json:"owner_alive"`
	Working            bool       `json:"working"`
	Term               int64      `json:"term"`
	Cursor             int64      `json:"cursor"`
	CursorAt           *time.Time `json:"cursor_at"`
	Published          int64      `json:"published"`
	PublishedPerSecond *float64   `json:"published_per_second"`
	Pending            int64      `json:"pending"`
	PendingExact       bool       `json:"pending_exact"`
	OldestSeconds      *float64   `json:"oldest_unpublished_seconds"`
	OldestDevice       *string    `json:"oldest_unpublished_device"`
	OldestStream       *string    `json:"oldest_unpublished_stream"`
	Breaker            string     `json:"breaker"`
	RowAttempts        int        `json:"row_attempts"`
	OutageAttempts     int64      `json:"outage_attempts"`
	LastErrorCode      *string    `json:"last_error_code"`
	LastError          *string    `json:"last_error"`
	NextAttemptAt      *time.Time `json:"next_attempt_at"`
	Halted             *string    `json:"halted"`

	oldestAt *time.Time
}

func readStatus(ctx context.Context, conn *pgx.Conn, s schema.Settings, opts statusOptions) (*statusReport, error) {
	r := &statusReport{Version: 1, Cell: s.Cell, Topic: s.Topic, TopicPartitions: s.TopicPartitions}
	rates, err := sampleRates(ctx, conn, opts.sample)
	if err != nil {
		return nil, err
	}
	if err := r.readBuckets(ctx, conn, opts.limit); err != nil {
		return nil, err
	}
	if err := r.readInstances(ctx, conn); err != nil {
		return nil, err
	}
	if err := r.readDead(ctx, conn); err != nil {
		return nil, err
	}
	r.sum(rates)
	return r, nil
}

func (r *statusReport) readBuckets(ctx context.Context, conn *pgx.Conn, limit int64) error {
	rows, err := conn.Query(ctx, selectBuckets, limit)
	if err != nil {
		return fmt.Errorf("read buckets: %w", err)
	}
	var b bucketStatus
	_, err = pgx.ForEachRow(rows, []any{
		&b.Bucket, &b.Owner, &b.OwnerAlive, &b.Working, &b.Term, &b.Cursor, &b.CursorAt, &b.Published, &b.Pending, &b.oldestAt, &b.OldestDevice, &b.OldestStream,
		&b.RowAttempts, &b.OutageAttempts, &b.LastErrorCode, &b.LastError, &b.NextAttemptAt, &b.Halted, &r.At,
	}, func() error {
		one := b
		one.Partition = outbox.Partition(b.Bucket, r.TopicPartitions)
		one.PendingExact = b.Pending < limit
		one.Breaker = b.breaker(r.At)
		if b.oldestAt != nil {
			seconds := max(0, r.At.Sub(*b.oldestAt).Seconds())
			one.OldestSeconds = &seconds
		}
		r.Buckets = append(r.Buckets, one)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read buckets: %w", err)
	}
	return nil
}

// breaker tells the state of the breaker that keeps this bucket back, as the database sees it: the relay's memory is not
// at hand.
func (b *bucketStatus) breaker(now time.Time) string {
	switch {
	case b.NextAttemptAt == nil:
		return outbox.BreakerClosed.String()
	case now.Before(*b.NextAttemptAt):
		return outbox.BreakerOpen.String()
	}
	return outbox.BreakerHalfOpen.String()
}

func (r *statusReport) readInstances(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, selectInstances)
	if err != nil {
		return fmt.Errorf("read relay instances: %w", err)
	}
	r.Instances, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (i instanceStatus, err error) {
		err = row.Scan(&i.Instance, &i.StartedAt, &i.LeaseUntil, &i.Alive, &i.Buckets)
		return i, err
	})
	if err != nil {
		return fmt.Errorf("read relay instances: %w", err)
	}
	return nil
}

func (r *statusReport) readDead(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, selectDeadCounts)
	if err != nil {
		return fmt.Errorf("count dead letters: %w", err)
	}
	r.Dead, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d deadCount, err error) {
		err = row.Scan(&d.State, &d.Code, &d.Rows, &d.Oldest)
		return d, err
	})
	if err != nil {
		return fmt.Errorf("count dead letters: %w", err)
	}
	return nil
}

// sampleRates reads how much every bucket published in a while; nil when over is 0.
func sampleRates(ctx context.Context, conn *pgx.Conn, over time.Duration) (map[int16]float64, error) {
	if over <= 0 {
		return nil, nil
	}
	before, from, err := readPublished(ctx, conn)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(over):
	}
	after, to, err := readPublished(ctx, conn)
	if err != nil {
		return nil, err
	}
	rates := make(map[int16]float64, len(after))
	for bucket, n := range after {
		rates[bucket] = float64(n-before[bucket]) / to.Sub(from).Seconds()
	}
	return rates, nil
}

func readPublished(ctx context.Context, conn *pgx.Conn) (map[int16]int64, time.Time, error) {
	published := map[int16]int64{}
	rows, err := conn.Query(ctx, selectPublished)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read published: %w", err)
	}
	var bucket int16
	var n int64
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&bucket, &n, &at}, func() error { published[bucket] = n; return nil }); err != nil {
		return nil, time.Time{}, fmt.Errorf("read published: %w", err)
	}
	return published, at, nil
}

func (r *statusReport) sum(rates map[int16]float64) {
	t := &r.Totals
	t.PendingExact = true
	for i := range r.Buckets {
		b := &r.Buckets[i]
		t.Buckets++
		t.add(b)
		if rates == nil {
			continue
		}
		rate := rates[b.Bucket]
		b.PublishedPerSecond = &rate
		if t.PublishedPerSecond == nil {
			t.PublishedPerSecond = new(float64)
		}
		*t.PublishedPerSecond += rate
	}
}

func (t *statusTotals) add(b *bucketStatus) {
	t.Published += b.Published
	t.Pending += b.Pending
	t.PendingExact = t.PendingExact && b.PendingExact
	if !b.OwnerAlive {
		t.Unowned++
	}
	if b.Halted != nil {
		t.Halted++
	}
	if b.LastErrorCode != nil {
		t.Failing++
	}
	if b.OldestSeconds != nil && (t.OldestSeconds == nil || *b.OldestSeconds > *t.OldestSeconds) {
		t.OldestSeconds, t.OldestDevice, t.OldestStream = b.OldestSeconds, b.OldestDevice, b.OldestStream
	}
}

func (r *statusReport) print(out io.Writer, all bool) error {
	r.printTotals(out)
	fmt.Fprintln(out)
	t := newTable(out, "INSTANCE", "ALIVE", "BUCKETS", "STARTED", "LEASE UNTIL")
	for _, i := range r.Instances {
		t.row(i.Instance, yes(i.Alive), i.Buckets, instant(&i.StartedAt), instant(&i.LeaseUntil))
	}
	_ = t.Flush()
	if len(r.Dead) > 0 {
		fmt.Fprintln(out)
		t = newTable(out, "LETTERS", "ERROR", "ROWS", "OLDEST")
		for _, d := range r.Dead {
			t.row(d.State, d.Code, d.Rows, instant(&d.Oldest))
		}
		_ = t.Flush()
	}
	return r.printBuckets(out, all)
}

func (r *statusReport) printTotals(out io.Writer) {
	t := r.Totals
	fmt.Fprintf(out, "cell %s → topic %s (%d partitions), %s\n", r.Cell, r.Topic, r.TopicPartitions, plural(int64(t.Buckets), "bucket"))
	fmt.Fprintf(out, "published %d", t.Published)
	if t.PublishedPerSecond != nil {
		fmt.Fprintf(out, ", %.0f/s", *t.PublishedPerSecond)
	}
	fmt.Fprintf(out, "\nbacklog   %s\n", backlog(t.Pending, t.PendingExact))
	if t.OldestSeconds != nil {
		fmt.Fprintf(out, "oldest    %s, device %s, stream %s\n", age(time.Duration(*t.OldestSeconds*float64(time.Second))), *t.OldestDevice, *t.OldestStream)
	}
	if t.Unowned+t.Halted+t.Failing > 0 {
		fmt.Fprintf(out, "trouble   %d without a living owner, %d failing, %d halted\n", t.Unowned, t.Failing, t.Halted)
	}
}

func (r *statusReport) printBuckets(out io.Writer, all bool) error {
	var shown []*bucketStatus
	for i := range r.Buckets {
		if all || r.Buckets[i].interesting() {
			shown = append(shown, &r.Buckets[i])
		}
	}
	if len(shown) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	t := newTable(out, "BUCKET", "PARTITION", "OWNER", "TERM", "BACKLOG", "OLDEST", "RATE", "BREAKER", "ATTEMPTS", "NEXT TRY", "ERROR")
	for _, b := range shown {
		t.row(b.Bucket, b.Partition, b.ownerText(), b.Term, backlog(b.Pending, b.PendingExact), seconds(b.OldestSeconds), rate(b.PublishedPerSecond),
			b.Breaker, fmt.Sprintf("%d row, %d outage", b.RowAttempts, b.OutageAttempts), instant(b.NextAttemptAt), text(b.LastErrorCode))
	}
	_ = t.Flush()
	for _, b := range shown {
		if b.Halted != nil {
			fmt.Fprintf(out, "\nbucket %d is halted: %s\n", b.Bucket, *b.Halted)
		}
	}
	return nil
}

func (b *bucketStatus) interesting() bool {
	return b.Pending > 0 || !b.OwnerAlive || b.LastErrorCode != nil || b.Halted != nil
}

func (b *bucketStatus) ownerText() string {
	switch {
	case b.Owner == nil:
		return "nobody"
	case !b.OwnerAlive:
		return *b.Owner + " (gone)"
	}
	return *b.Owner
}

func backlog(rows int64, exact bool) string {
	if exact {
		return fmt.Sprintf("%d rows", rows)
	}
	return fmt.Sprintf("at least %d rows", rows)
}

func seconds(s *float64) string {
	if s == nil {
		return ""
	}
	return age(time.Duration(*s * float64(time.Second)))
}

func rate(r *float64) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%.0f/s", *r)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
