package outbox

import (
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

// replayRecord renders a letter as the relay renders a row, and adds ce_replay. The value is the payload, byte for byte.
func replayRecord(l *Letter, payload []byte, topic, cell string, partitions int, plan uuid.UUID) *kgo.Record {
	r := &kgo.Record{Topic: topic, Partition: Partition(l.Bucket, partitions), Key: []byte(l.AggregateID), Value: payload}
	put := func(name, value string) {
		if value != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
	put(HeaderSpecVersion, "1.0")
	put(HeaderID, l.MessageID.String())
	put(HeaderSource, l.Source)
	put(HeaderType, l.EventType)
	put(HeaderSubject, l.AggregateID)
	if l.OccurredAt != nil {
		put(HeaderTime, l.OccurredAt.UTC().Format(timeLayout))
	}
	put(HeaderSequence, fmt.Sprintf("%019d", l.Sequence))
	put(HeaderEpoch, strconv.FormatInt(l.Epoch, 10))
	put(HeaderStream, l.Stream)
	put(HeaderPartitionKey, l.AggregateID)
	put(HeaderTraceparent, value(l.Traceparent))
	put(HeaderCorrelationID, value(l.CorrelationID))
	put(HeaderCausationID, value(l.CausationID))
	put(HeaderSchemaVersion, strconv.Itoa(int(l.SchemaVersion)))
	put(HeaderContentType, "application/json")
	put(HeaderCell, cell)
	put(HeaderBucket, strconv.Itoa(int(l.Bucket)))
	put(HeaderPosition, strconv.FormatInt(l.Position, 10))
	put(HeaderCommittedAt, l.CreatedAt.UTC().Format(timeLayout))
	put(HeaderReplay, plan.String())
	return r
}
