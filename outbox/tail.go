package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// tailRequest asks what the topic holds of some buckets behind their cursors.
type tailRequest struct{ claims []claim }

// tailAnswer is what the engine does with one bucket.
type tailAnswer struct {
	bucket    int16
	term      int64
	last      row     // the newest row on the topic above the cursor; position 0 = none
	published int64   // rows above the cursor found on the topic
	overtaken []int64 // rows below last that are not there: they can no longer be first deliveries in order
	halt      string  // the database has lost a past that was published
	unread    error   // its partition could not be read: ask again
	behind    bool    // the topic has lost something that was published
	skips     *skipIndex
	held      map[string]bool
}

type tailResult struct {
	request tailRequest
	answers []tailAnswer
	err     error
}

// tailRecord is what the topic says of a row.
type tailRecord struct {
	position int64
	id       [16]byte
}

// tailReader compares topic and database for buckets that were just claimed, or whose last group failed with an unknown
// outcome. Only Kafka can tell: a restored base backup has the same system identifier, timeline and a matching maximum.
type tailReader struct {
	cfg    *Config
	link   link
	client *kgo.Client
	in     <-chan tailRequest
	out    chan<- tailResult
}

const (
	// tailTimeout bounds one check.
	tailTimeout = 20 * time.Second

	// tailPatience is how long a partition may stay silent while it is read; a leader that went away just now.
	tailPatience = 3 * time.Second

	// tailSlack covers the difference of the clocks of broker, database and relays.
	tailSlack = 10 * time.Minute
)

func (t *tailReader) run(ctx context.Context) error {
	defer t.link.close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case req := <-t.in:
			res := tailResult{request: req}
			res.answers, res.err = t.check(ctx, req.claims)
			select {
			case t.out <- res:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func (t *tailReader) check(ctx context.Context, claims []claim) ([]tailAnswer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tailTimeout, fmt.Errorf("tail check took longer than %s", tailTimeout))
	defer cancel()
	scan, err := t.read(ctx, claims)
	if err != nil {
		return nil, fmt.Errorf("read tail of topic: %w", err)
	}
	answers := make([]tailAnswer, 0, len(claims))
	err = t.link.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		index, err := loadIndexes(ctx, conn, claims)
		if err != nil {
			return err
		}
		for _, c := range claims {
			if err := scan.unread[Partition(c.bucket, t.cfg.TopicPartitions)]; err != nil {
				answers = append(answers, tailAnswer{bucket: c.bucket, term: c.term, unread: err})
				continue
			}
			a, err := decideTail(ctx, conn, c, scan.found[c.bucket])
			if err != nil {
				return err
			}
			a.skips, a.held = index.skips[c.bucket], index.held[c.bucket]
			answers = append(answers, a)
		}
		return nil
	})
	return answers, err
}

// decideTail compares the newest record of a bucket with the stored row.
func decideTail(ctx context.Context, conn *pgx.Conn, c claim, records map[int64]tailRecord) (tailAnswer, error) {
	a := tailAnswer{bucket: c.bucket, term: c.term}
	var newest tailRecord
	for _, r := range records {
		if r.position > newest.position {
			newest = r
		}
	}
	switch {
	case newest.position < c.cursor:
		a.behind = c.cursorAt.Valid
		return a, nil
	case newest.position == c.cursor:
		if c.cursor > 0 && c.cursorID.Valid && c.cursorID.Bytes != newest.id {
			a.halt = haltMessage(c.bucket, newest, "another message is stored there")
		}
		return a, nil
	}
	var stored [16]byte
	err := conn.QueryRow(ctx, rowAt, c.bucket, newest.position).Scan(&stored)
	if errors.Is(err, pgx.ErrNoRows) {
		a.halt = haltMessage(c.bucket, newest, "no such row is stored")
		return a, nil
	}
	if err != nil {
		return a, fmt.Errorf("read row at tail: %w", err)
	}
	if stored != newest.id {
		a.halt = haltMessage(c.bucket, newest, "another message is stored there")
		return a, nil
	}
	return resumeAt(ctx, conn, c, newest, records, a)
}

// resumeAt moves the cursor to the tail; rows before it that are not on the topic were overtaken.
func resumeAt(ctx context.Context, conn *pgx.Conn, c claim, newest tailRecord, records map[int64]tailRecord, a tailAnswer) (tailAnswer, error) {
	a.last = row{position: newest.position, id: newest.id}
	rows, err := conn.Query(ctx, rowsBetween, c.bucket, c.cursor, newest.position)
	if err != nil {
		return a, fmt.Errorf("read rows up to tail: %w", err)
	}
	var position int64
	_, err = pgx.ForEachRow(rows, []any{&position}, func() error {
		if _, ok := records[position]; ok {
			a.published++
			return nil
		}
		a.overtaken = append(a.overtaken, position)
		return nil
	})
	if err != nil {
		return a, fmt.Errorf("read rows up to tail: %w", err)
	}
	return a, nil
}

func haltMessage(bucket int16, r tailRecord, what string) string {
	return fmt.Sprintf("the topic holds position %d of bucket %d, but %s: the database lost a past that was published; run `relay rebase`", r.position, bucket, what)
}

// read collects, per bucket, the records above its cursor. It reads each partition backwards in growing steps until every
// bucket of interest is settled or the partition's beginning is reached. A partition that cannot be read (no leader) is
// named in unread and holds up nobody else's buckets.
func (t *tailReader) read(ctx context.Context, claims []claim) (*tailScan, error) {
	adm := kadm.NewClient(t.client)
	starts, err := adm.ListStartOffsets(ctx, t.cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("list start offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, t.cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("list end offsets: %w", err)
	}
	s := newTailScan(t.cfg, claims)
	for step := int64(firstTailStep); ; step *= 8 {
		ranges := s.ranges(starts, ends, step)
		if len(ranges) == 0 {
			return s, nil
		}
		if err := t.consume(ctx, s, ranges); err != nil {
			return nil, err
		}
	}
}

// maxTailScan bounds what is read of one partition: a cell that never published into a large topic finds nothing there.
const maxTailScan = 1 << 18

// firstTailStep covers what a dying producer can have had in flight in one partition.
const firstTailStep = 1024

type offsetRange struct{ from, to int64 }

// consume reads the ranges, one per partition, to their ends.
func (t *tailReader) consume(ctx context.Context, s *tailScan, ranges map[int32]offsetRange) error {
	add := make(map[int32]kgo.Offset, len(ranges))
	var partitions []int32
	for p, r := range ranges {
		add[p] = kgo.NewOffset().At(r.from)
		partitions = append(partitions, p)
	}
	t.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{t.cfg.Topic: add})
	defer t.client.RemoveConsumePartitions(map[string][]int32{t.cfg.Topic: partitions})
	open := maps.Clone(ranges)
	for len(open) > 0 {
		fetches, err := t.poll(ctx)
		if err != nil {
			return err
		}
		if fetches == nil { // silence
			for p := range open {
				s.unread[p] = errSilentPartition
			}
			return nil
		}
		fetches.EachError(func(_ string, p int32, err error) {
			if _, ok := open[p]; ok {
				s.unread[p] = err
				delete(open, p)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			rg, ok := open[r.Partition]
			if !ok {
				return
			}
			if r.Offset < rg.to {
				s.add(r)
			}
			if r.Offset >= rg.to-1 {
				delete(open, r.Partition)
			}
		})
	}
	return nil
}

// errSilentPartition says that a partition delivered nothing although records stand there.
var errSilentPartition = errors.New("partition delivered nothing")

// poll returns nil fetches when nothing came within tailPatience.
func (t *tailReader) poll(ctx context.Context) (kgo.Fetches, error) {
	short, cancel := context.WithTimeout(ctx, tailPatience)
	defer cancel()
	fetches := t.client.PollFetches(short)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if short.Err() != nil && fetches.NumRecords() == 0 {
		return nil, nil
	}
	return fetches, nil
}

// tailScan collects what was read.
type tailScan struct {
	cell       string
	partitions int
	cursors    map[int16]int64
	found      map[int16]map[int64]tailRecord
	since      map[int16]time.Time
	settled    map[int16]bool // a record at or below the cursor, or older than anything above it can be, was seen
	scanned    map[int32]int64
	oldest     map[int32]time.Time
	unread     map[int32]error
}

func newTailScan(cfg *Config, claims []claim) *tailScan {
	s := &tailScan{
		cell: cfg.Cell, partitions: cfg.TopicPartitions, cursors: make(map[int16]int64),
		found: make(map[int16]map[int64]tailRecord), settled: make(map[int16]bool), scanned: make(map[int32]int64),
		since: make(map[int16]time.Time), oldest: make(map[int32]time.Time), unread: make(map[int32]error),
	}
	for _, c := range claims {
		s.cursors[c.bucket] = c.cursor
		s.since[c.bucket] = c.since
		s.found[c.bucket] = make(map[int64]tailRecord)
	}
	return s
}

// ranges are the next stretches to read: for each partition with an unsettled bucket, the step before what was read.
func (s *tailScan) ranges(starts, ends kadm.ListedOffsets, step int64) map[int32]offsetRange {
	next := make(map[int32]offsetRange)
	for bucket := range s.cursors {
		p := Partition(bucket, s.partitions)
		if _, ok := next[p]; ok || s.isSettled(bucket, p) {
			continue
		}
		to, started := s.scanned[p]
		start, end := s.offset(starts, p), s.offset(ends, p)
		if !started {
			to = end
		}
		if s.unread[p] != nil || to <= start || end-to > maxTailScan {
			continue
		}
		next[p] = offsetRange{from: max(start, to-step), to: to}
	}
	for p, r := range next {
		s.scanned[p] = r.from
	}
	return next
}

// isSettled reports whether further back nothing can matter.
func (s *tailScan) isSettled(bucket int16, p int32) bool {
	oldest, since := s.oldest[p], s.since[bucket]
	return s.settled[bucket] || (!oldest.IsZero() && !since.IsZero() && oldest.Before(since))
}

func (s *tailScan) offset(listed kadm.ListedOffsets, p int32) int64 {
	for _, partitions := range listed {
		o, ok := partitions[p]
		switch {
		case !ok:
		case o.Err != nil:
			s.unread[p] = o.Err
		default:
			return o.Offset
		}
	}
	return 0
}

// add keeps a record of a bucket of interest. Replays carry old positions and say nothing about the tail.
func (s *tailScan) add(r *kgo.Record) {
	if oldest := s.oldest[r.Partition]; oldest.IsZero() || r.Timestamp.Before(oldest) {
		s.oldest[r.Partition] = r.Timestamp
	}
	var cell, bucket, position, id []byte
	for i := range r.Headers {
		switch h := &r.Headers[i]; h.Key {
		case HeaderCell:
			cell = h.Value
		case HeaderBucket:
			bucket = h.Value
		case HeaderPosition:
			position = h.Value
		case HeaderID:
			id = h.Value
		case HeaderReplay:
			return
		}
	}
	if string(cell) != s.cell {
		return
	}
	b, err1 := strconv.ParseInt(string(bucket), 10, 16)
	p, err2 := strconv.ParseInt(string(position), 10, 64)
	cursor, wanted := s.cursors[int16(b)]
	if err1 != nil || err2 != nil || !wanted {
		return
	}
	if p <= cursor {
		s.settled[int16(b)] = true
	}
	s.found[int16(b)][p] = tailRecord{position: p, id: parseUUID(id)}
}

func parseUUID(text []byte) [16]byte {
	var id [16]byte
	n := 0
	for _, c := range bytes.ToLower(text) {
		v := bytes.IndexByte([]byte(hexDigits), c)
		if v < 0 || n >= 32 {
			continue
		}
		id[n/2] |= byte(v) << (4 * (1 - n%2))
		n++
	}
	return id
}
