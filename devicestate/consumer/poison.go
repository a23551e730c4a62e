package consumer

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// PoisonPolicy says what becomes of a record that cannot be decoded or whose handler fails for good. The zero value is Stop.
type PoisonPolicy struct{ topic string }

// Stop ends Run with a *PoisonError: nothing of the partition is handled past the record until someone decides.
func Stop() PoisonPolicy { return PoisonPolicy{} }

// DeadLetterTo copies the record to topic, as it came (key, value, headers) plus the headers hs_reason, hs_error,
// hs_topic, hs_partition, hs_offset and hs_group, waits until all replicas have it, and goes on. The topic must exist. After a
// crash a copy may stand there twice.
func DeadLetterTo(topic string) PoisonPolicy { return PoisonPolicy{topic: topic} }

// PoisonError is what Run returns under the policy Stop.
type PoisonError struct {
	Topic     string
	Partition int32
	Offset    int64
	Reason    string // undecodable, unknown_type, unknown_version, key_mismatch or handler
	Err       error
}

func (e *PoisonError) Error() string {
	return fmt.Sprintf("record %s/%d@%d cannot be handled: %s: %v (hint: with a dead-letter topic it is copied there and the partition goes on)",
		e.Topic, e.Partition, e.Offset, e.Reason, e.Err)
}

func (e *PoisonError) Unwrap() error { return e.Err }

// deadLetter is the copy of a record for the dead-letter topic.
func deadLetter(topic, group string, r *kgo.Record, p *poison) *kgo.Record {
	add := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	headers := append([]kgo.RecordHeader(nil), r.Headers...)
	return &kgo.Record{
		Topic: topic, Key: r.Key, Value: r.Value,
		Headers: append(headers,
			add("hs_reason", p.reason), add("hs_error", fmt.Sprintf("%.500s", p.detail)), add("hs_topic", r.Topic),
			add("hs_partition", strconv.Itoa(int(r.Partition))), add("hs_offset", strconv.FormatInt(r.Offset, 10)),
			add("hs_group", group)),
	}
}

// produceDeadLetter returns once the copy is on all replicas.
func (r *run) produceDeadLetter(ctx context.Context, record *kgo.Record, p *poison) error {
	copied := deadLetter(r.cfg.Poison.topic, r.cfg.Group, record, p)
	if err := r.link.produce(ctx, copied); err != nil {
		return fmt.Errorf("write dead letter: %w", err)
	}
	r.metrics.poison(p.reason)
	r.cfg.Logger.Warn("record moved to the dead-letter topic", "dead_letter_topic", copied.Topic, "reason", p.reason,
		"error", p.detail, "partition", record.Partition, "offset", record.Offset)
	return nil
}
