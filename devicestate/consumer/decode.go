package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The reasons a record is poison, in the header hs_reason of its copy on the dead-letter topic and in metrics.
const (
	reasonUndecodable    = "undecodable"     // the value is no DeviceStateChanged of this version
	reasonUnknownType    = "unknown_type"    // ce_type is another event
	reasonUnknownVersion = "unknown_version" // ce_schemaversion is missing or newer than this package
	reasonKeyMismatch    = "key_mismatch"    // the record's key is not the event's device: its order is not to be trusted
	reasonHandler        = "handler"         // the handler failed for good
)

// poison says why a record cannot be handled.
type poison struct {
	reason string
	detail string
}

// decoder turns records of one partition into deliveries. Not safe for concurrent use.
type decoder struct{ values devicestate.Decoder }

// decode never panics and never fails a neighbour: a record is a delivery or poison.
func (d *decoder) decode(r *kgo.Record) (*Delivery, *poison) {
	if p := checkContract(r); p != nil {
		return nil, p
	}
	event, err := d.values.Decode(r.Value)
	if err != nil {
		return nil, &poison{reasonUndecodable, err.Error()}
	}
	if r.Key != nil && string(r.Key) != event.Device {
		return nil, &poison{reasonKeyMismatch, "the key is not the device_id of the value"}
	}
	out := &Delivery{
		Event: event, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Value: r.Value, record: r,
		Replay: header(r, "ce_replay"),
	}
	// What these two say is about the way, not about the state: an event is not thrown away for them. A ce_skipped that
	// cannot be read explains nothing, so its hole alarms as loss.
	out.Skips, _ = devicestate.ParseSkips(header(r, "ce_skipped"))
	out.CommittedAt, _ = time.Parse(time.RFC3339Nano, header(r, "ce_committedat"))
	return out, nil
}

func checkContract(r *kgo.Record) *poison {
	if t := header(r, "ce_type"); t != devicestate.EventType {
		return &poison{reasonUnknownType, fmt.Sprintf("ce_type is %.64q, not %q", t, devicestate.EventType)}
	}
	if v := header(r, "ce_schemaversion"); v != supportedVersion {
		return &poison{reasonUnknownVersion, fmt.Sprintf("ce_schemaversion is %.16q, not %q", v, supportedVersion)}
	}
	return nil
}

// supportedVersion is devicestate.SchemaVersion as its header says it.
const supportedVersion = "1"

// isTombstone: a null value is Kafka's mark for a deleted key (a device that was erased); there is nothing to handle.
func isTombstone(r *kgo.Record) bool { return r.Value == nil }

// Decode reads a record as Run does. The error says why the record would be poison; nil and no delivery is a tombstone.
func Decode(r *kgo.Record) (*Delivery, error) {
	if isTombstone(r) {
		return nil, nil
	}
	var d decoder
	delivery, bad := d.decode(r)
	if bad != nil {
		return nil, &PoisonError{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Reason: bad.reason, Err: errors.New(bad.detail)}
	}
	return delivery, nil
}
