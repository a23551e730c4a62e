package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Tail is the newest event of a bucket on the topic: the one with the highest position. Replays do not count.
type Tail struct {
	Partition   int32     `json:"kafka_partition"`
	Offset      int64     `json:"offset"`
	Position    int64     `json:"position"`
	MessageID   uuid.UUID `json:"message_id"`
	AggregateID string    `json:"aggregate_id"`
	Stream      string    `json:"stream"`
	Epoch       int64     `json:"epoch"`
	Sequence    int64     `json:"sequence"`
}

// TopicRef says which events of which topic belong to a cell.
type TopicRef struct {
	Topic      string
	Cell       string
	Partitions int
	Buckets    int
}

// ReadTails reads the tail of every bucket, for people: `relay reconcile` and `relay rebase`. It reads each partition
// backwards until all of its buckets were seen, its beginning is reached, or 2^18 records were read. A bucket of which
// nothing was found is not in the result. A partition that cannot be read is an error.
func ReadTails(ctx context.Context, opts []kgo.Opt, ref TopicRef) (map[int16]Tail, error) {
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("read tails of topic %s: %w", ref.Topic, err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, ref.Topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("read tails of topic %s: list start offsets: %w", ref.Topic, err)
	}
	ends, err := admin.ListEndOffsets(ctx, ref.Topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("read tails of topic %s: list end offsets: %w", ref.Topic, err)
	}
	s := newTailSearch(ref, starts, ends)
	for step := int64(256); len(s.open) > 0; step *= 8 {
		if err := s.turn(ctx, opts, step); err != nil {
			return nil, fmt.Errorf("read tails of topic %s: %w", ref.Topic, err)
		}
	}
	return s.tails, nil
}

// stretch is the part of a partition that is read next: [from, to), above which everything was read.
type stretch struct{ start, from, to, end int64 }

// tailSearch knows what is still looked for.
type tailSearch struct {
	ref   TopicRef
	tails map[int16]Tail
	open  map[int32]stretch
}

func newTailSearch(ref TopicRef, starts, ends kadm.ListedOffsets) *tailSearch {
	s := &tailSearch{ref: ref, tails: map[int16]Tail{}, open: map[int32]stretch{}}
	ends.Each(func(o kadm.ListedOffset) {
		start, _ := starts.Lookup(o.Topic, o.Partition)
		if start.Offset < o.Offset {
			s.open[o.Partition] = stretch{start: start.Offset, from: o.Offset, to: o.Offset, end: o.Offset}
		}
	})
	return s
}

// turn reads one more stretch of every partition that is not done.
func (s *tailSearch) turn(ctx context.Context, opts []kgo.Opt, step int64) error {
	offsets := map[int32]kgo.Offset{}
	for p, r := range s.open {
		r.to, r.from = r.from, max(r.start, r.from-step)
		s.open[p] = r
		offsets[p] = kgo.NewOffset().At(r.from)
	}
	// A full slice expression: two turns must not write into the same spare capacity.
	client, err := kgo.NewClient(append(slices.Clip(opts),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.ref.Topic: offsets}),
		kgo.KeepControlRecords())...) // a foreign producer's transaction marker may be what stands last
	if err != nil {
		return err
	}
	defer client.Close()
	if err := s.consume(ctx, client); err != nil {
		return err
	}
	maps.DeleteFunc(s.open, func(p int32, r stretch) bool {
		return r.from == r.start || r.end-r.from >= maxTailScan || s.complete(p)
	})
	return nil
}

// tailSilence is how long a partition with records may say nothing.
const tailSilence = 10 * time.Second

func (s *tailSearch) consume(ctx context.Context, client *kgo.Client) error {
	left := maps.Clone(s.open)
	for len(left) > 0 {
		poll, cancel := context.WithTimeout(ctx, tailSilence)
		fetches := client.PollFetches(poll)
		silent := poll.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if silent {
			return fmt.Errorf("partitions %v delivered nothing for %s", slices.Sorted(maps.Keys(left)), tailSilence)
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return fmt.Errorf("partition %d: %w", errs[0].Partition, errs[0].Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if at, ok := left[r.Partition]; ok && r.Offset < at.to {
				s.see(r)
			}
			if at, ok := left[r.Partition]; ok && r.Offset >= at.to-1 {
				delete(left, r.Partition)
			}
		})
	}
	return nil
}

func (s *tailSearch) see(r *kgo.Record) {
	bucket, tail, err := parseTail(r, s.ref.Cell)
	if err != nil {
		return // another cell's, a replay, or not an event at all
	}
	if have, ok := s.tails[bucket]; !ok || tail.Position > have.Position {
		s.tails[bucket] = tail
	}
}

// complete is true when every bucket of the partition was seen.
func (s *tailSearch) complete(p int32) bool {
	for b := int(p); b < s.ref.Buckets; b += s.ref.Partitions {
		if _, ok := s.tails[int16(b)]; !ok {
			return false
		}
	}
	return true
}

var errForeignRecord = errors.New("no first delivery of this cell")

func parseTail(r *kgo.Record, cell string) (bucket int16, t Tail, err error) {
	h := map[string]string{}
	for _, header := range r.Headers {
		h[header.Key] = string(header.Value)
	}
	if h[HeaderCell] != cell || h[HeaderReplay] != "" {
		return 0, t, errForeignRecord
	}
	number := func(name string) int64 {
		n, e := strconv.ParseInt(h[name], 10, 64)
		err = errors.Join(err, e)
		return n
	}
	bucket = int16(number(HeaderBucket))
	t = Tail{
		Partition: r.Partition, Offset: r.Offset, AggregateID: string(r.Key), Stream: h[HeaderStream],
		Position: number(HeaderPosition), Epoch: number(HeaderEpoch), Sequence: number(HeaderSequence),
	}
	id, e := uuid.Parse(h[HeaderID])
	t.MessageID = id
	return bucket, t, errors.Join(err, e)
}
