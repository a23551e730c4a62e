package consumertest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Event returns a valid event of a device's stream "state" at (epoch, sequence), received a fixed while after the year
// 2026 began: sequence seconds. Change what the test is about.
func Event(device string, epoch, sequence int64) devicestate.Event {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(sequence) * time.Second)
	e := devicestate.Event{
		Device: device, Hub: "hub-1", Stream: "state", Epoch: epoch, Sequence: sequence,
		OccurredAt: at.Add(-time.Second), ReceivedAt: at, Counter: devicestate.Some(sequence),
		State: fmt.Appendf(nil, `{"battery":%d}`, sequence%101),
	}
	copy(e.MessageID[:], fmt.Sprintf("%016d", sequence))
	e.MessageID[6], e.MessageID[8] = 0x70, 0x80 // version 7, variant 10
	return e
}

// Header sets a header of a record; an empty value removes it.
func Header(name, value string) func(*kgo.Record) {
	return func(r *kgo.Record) {
		for i := range r.Headers {
			if r.Headers[i].Key == name {
				r.Headers = append(r.Headers[:i], r.Headers[i+1:]...)
				break
			}
		}
		if value != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
}

// Skipped says which sequences before this one were left out on purpose: "41-57:superseded,58:dead".
func Skipped(ranges string) func(*kgo.Record) { return Header("ce_skipped", ranges) }

// Replayed marks a record as sent again by an operator.
func Replayed(id string) func(*kgo.Record) { return Header("ce_replay", id) }

// Value replaces the record's value.
func Value(value []byte) func(*kgo.Record) { return func(r *kgo.Record) { r.Value = value } }

// Record is e as the relay publishes it to topic, with all headers of the contract, and then changed.
func Record(topic string, e devicestate.Event, changes ...func(*kgo.Record)) *kgo.Record {
	r := &kgo.Record{
		Topic: topic, Key: []byte(e.Device), Value: devicestate.AppendEvent(nil, &e),
		Timestamp: e.ReceivedAt.Add(20 * time.Millisecond),
	}
	id := string(devicestate.AppendUUID(nil, e.MessageID))
	for _, h := range [][2]string{
		{"ce_specversion", "1.0"}, {"ce_id", id}, {"ce_source", devicestate.Source(e.Hub)}, {"ce_type", devicestate.EventType},
		{"ce_subject", e.Device}, {"ce_time", instant(e.OccurredAt)}, {"ce_sequence", fmt.Sprintf("%019d", e.Sequence)},
		{"ce_epoch", strconv.FormatInt(e.Epoch, 10)}, {"ce_stream", e.Stream}, {"ce_partitionkey", e.Device},
		{"ce_traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {"ce_schemaversion", "1"},
		{"content-type", devicestate.ContentType}, {"ce_cell", "test"}, {"ce_bucket", "0"},
		{"ce_position", strconv.FormatInt(e.Sequence, 10)}, {"ce_committedat", instant(e.ReceivedAt.Add(10 * time.Millisecond))},
	} {
		Header(h[0], h[1])(r)
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}
