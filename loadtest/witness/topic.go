package witness

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hubstate/hubstate/loadtest/ledger"
	"github.com/hubstate/hubstate/loadtest/oracle"
)

// Offsets is where each partition of a topic ends, exclusive.
type Offsets map[int32]int64

// EndOffsets reads where the topic ends now. A topic that does not exist yet ends nowhere.
func EndOffsets(ctx context.Context, brokers []string, topic string) (Offsets, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return nil, fmt.Errorf("read topic: %w", err)
	}
	defer client.Close()
	listed, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("read topic: %w", err)
	}
	ends := Offsets{}
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			ends[o.Partition] = o.Offset
		}
	})
	return ends, nil
}

// ReadTopic reads every record of the topic between from and its end of now, in offset order within each partition,
// and keeps those of the ledger's devices. foreign counts the others.
func ReadTopic(ctx context.Context, brokers []string, topic string, from Offsets, book *ledger.Ledger, seed maphash.Seed) (records []oracle.Record, foreign int64, err error) {
	ends, err := EndOffsets(ctx, brokers, topic)
	if err != nil {
		return nil, 0, err
	}
	t := &topicReader{reader: newReader(book, seed), ends: ends, left: map[int32]bool{}}
	start := map[int32]kgo.Offset{}
	for p, end := range ends {
		if from[p] < end {
			start[p] = kgo.NewOffset().At(from[p])
			t.left[p] = true
		}
	}
	if len(start) == 0 {
		return nil, 0, nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: start}))
	if err != nil {
		return nil, 0, fmt.Errorf("read topic: %w", err)
	}
	defer client.Close()
	return t.read(ctx, client)
}

type topicReader struct {
	*reader
	ends    Offsets
	left    map[int32]bool // partitions not yet at their end
	records []oracle.Record
	foreign int64
}

// patience is how long the topic may give nothing before reading fails.
const patience = time.Minute

func (t *topicReader) read(ctx context.Context, client *kgo.Client) ([]oracle.Record, int64, error) {
	for len(t.left) > 0 {
		poll, cancel := context.WithTimeout(ctx, patience)
		fetches := client.PollFetches(poll)
		cancel()
		if err := fetches.Err(); err != nil {
			return nil, 0, fmt.Errorf("read topic: %w", err)
		}
		var err error
		fetches.EachRecord(func(r *kgo.Record) { err = errors.Join(err, t.take(r)) })
		if err != nil {
			return nil, 0, fmt.Errorf("read topic: %w", err)
		}
	}
	return t.records, t.foreign, nil
}

func (t *topicReader) take(r *kgo.Record) error {
	if r.Offset >= t.ends[r.Partition] {
		return nil
	}
	if r.Offset == t.ends[r.Partition]-1 {
		delete(t.left, r.Partition)
	}
	event, v, ours, err := t.event(r.Value)
	if err != nil {
		return fmt.Errorf("partition %d offset %d: %w", r.Partition, r.Offset, err)
	}
	if !ours {
		t.foreign++
		return nil
	}
	rec := oracle.Record{Event: event, Partition: r.Partition, Offset: r.Offset}
	rec.Misfiled = string(r.Key) != v.Device || contradicts(r, v)
	if rec.Skipped, err = parseSkipped(header(r, "ce_skipped")); err != nil {
		return fmt.Errorf("partition %d offset %d: %w", r.Partition, r.Offset, err)
	}
	t.records = append(t.records, rec)
	return nil
}

// contradicts holds the headers against the value.
func contradicts(r *kgo.Record, v value) bool {
	sequence, err := strconv.ParseInt(header(r, "ce_sequence"), 10, 64)
	epoch, errEpoch := strconv.ParseInt(header(r, "ce_epoch"), 10, 64)
	return err != nil || errEpoch != nil || sequence != v.Sequence || epoch != v.Epoch ||
		header(r, "ce_id") != v.MessageID || header(r, "ce_subject") != v.Device || header(r, "ce_stream") != v.Stream ||
		header(r, "ce_type") != "DeviceStateChanged" || len(header(r, "ce_sequence")) != 19
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// parseSkipped reads "41-57:superseded,58:dead".
func parseSkipped(text string) ([]oracle.Range, error) {
	if text == "" {
		return nil, nil
	}
	var all []oracle.Range
	for part := range strings.SplitSeq(text, ",") {
		numbers, _, ok := strings.Cut(part, ":")
		from, to, isRange := strings.Cut(numbers, "-")
		if !isRange {
			to = from
		}
		a, errA := strconv.ParseInt(from, 10, 64)
		b, errB := strconv.ParseInt(to, 10, 64)
		if !ok || errA != nil || errB != nil {
			return nil, fmt.Errorf("ce_skipped %q cannot be read", text)
		}
		all = append(all, oracle.Range{From: a, To: b})
	}
	return all, nil
}
