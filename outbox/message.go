package outbox

import (
	"fmt"
	"time"
)

// Message is one event to append. Payload is shipped byte for byte: neither the database nor the relay renders it again.
type Message struct {
	ID            [16]byte // unique; UUIDv7 keeps it roughly ordered
	AggregateType string
	AggregateID   string // Kafka key; decides bucket and partition
	EventType     string
	SchemaVersion int16
	Stream        string
	Epoch         int64 // at least 1
	Sequence      int64 // dense per (AggregateID, Stream) and epoch; at least 1
	Source        string
	Traceparent   string // empty = none
	CorrelationID string
	CausationID   string
	OccurredAt    time.Time // zero = unknown
	Payload       []byte    // not copied: leave it alone until the transaction has ended
}

func (m *Message) validate() error {
	switch {
	case m.AggregateID == "":
		return fmt.Errorf("append message: aggregate_id must not be empty")
	case m.Epoch < 1 || m.Sequence < 1:
		return fmt.Errorf("append message of %s/%s: epoch %d and sequence %d must be at least 1", m.AggregateID, m.Stream, m.Epoch, m.Sequence)
	}
	return nil
}
