package consumer

import (
	"strconv"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Delivery is one record of the topic, decoded, with what the gate said about it.
type Delivery struct {
	Event   devicestate.Event
	Verdict devicestate.Verdict // set before the handler sees it; zero inside Effects

	Skips       []devicestate.Skip // ce_skipped: what the relay left out on purpose before this event
	CommittedAt time.Time          // ce_committedat: when ingest's transaction wrote it; zero when not sent
	Replay      string             // ce_replay: id of the operator's replay; empty for a first delivery

	Partition int32
	Offset    int64
	Timestamp time.Time // of the record: when the relay produced it
	Value     []byte    // the record's value as it came

	// Rebuild: the store lost what it had (see package doc) and gets it again; or this group met the record as history
	// when it began. Delays measured with it say nothing about the pipeline.
	Rebuild bool

	// Compacted: the broker itself removes records of this topic, so a hole proves no loss; Verdict.Lost is empty.
	Compacted bool

	parked bool // in the dead-letter topic: the position moves past it without any effect
	record *kgo.Record
}

// Header returns the record's header of that name, such as ce_correlationid; "" when it has none.
func (d *Delivery) Header(name string) string {
	if d.record == nil {
		return ""
	}
	return header(d.record, name)
}

// Traceparent is the W3C trace context the report came with; empty when there was none.
func (d *Delivery) Traceparent() string { return d.Header("ce_traceparent") }

// Cell names the database the event comes from; with OutboxPosition it is the row it was published from, for tracing it back.
func (d *Delivery) Cell() string { return d.Header("ce_cell") }

// Bucket is the outbox bucket; -1 when not sent.
func (d *Delivery) Bucket() int {
	n, err := strconv.Atoi(d.Header("ce_bucket"))
	if err != nil {
		return -1
	}
	return n
}

// OutboxPosition is the position of the row in its cell's outbox; 0 when not sent.
func (d *Delivery) OutboxPosition() int64 {
	n, err := strconv.ParseInt(d.Header("ce_position"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Position is the (epoch, sequence) of the event.
func (d *Delivery) Position() devicestate.Position {
	return devicestate.Position{Epoch: d.Event.Epoch, Sequence: d.Event.Sequence}
}

// handled reports whether the delivery is the handler's: it passed the gate and is not in the dead-letter topic.
func (d *Delivery) handled() bool { return d.Verdict.Applies() && !d.parked }

func header(r *kgo.Record, name string) string {
	for i := range r.Headers {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value)
		}
	}
	return ""
}

// Hole is a stretch of a stream's sequence that did not arrive, told when the event after it did.
type Hole struct {
	Device, Stream, Hub string
	Epoch               int64
	Missing             devicestate.Range   // all that is between the last seen sequence and this one
	Lost                []devicestate.Range // what of it no policy explains: loss inside the pipeline
	Skips               []devicestate.Skip  // what the relay said it left out
	Compacted           bool                // see Delivery.Compacted
	ReceivedAt          time.Time           // of the event after the hole
	Partition           int32
	Offset              int64
}

// holeOf is meaningful only when the verdict is Hole.
func holeOf(d *Delivery) Hole {
	return Hole{
		Device: d.Event.Device, Stream: d.Event.Stream, Hub: d.Event.Hub, Epoch: d.Event.Epoch,
		Missing: d.Verdict.Missing, Lost: d.Verdict.Lost, Skips: d.Skips, Compacted: d.Compacted,
		ReceivedAt: d.Event.ReceivedAt, Partition: d.Partition, Offset: d.Offset,
	}
}
