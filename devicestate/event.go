package devicestate

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// The contract of DeviceStateChanged version 1. A changed byte of a published sample fails TestEvent_ContractIsFrozen.
const (
	EventType     = "DeviceStateChanged"
	SchemaVersion = 1
	AggregateType = "device"
	ContentType   = "application/json"
)

// timeLayout is RFC 3339 in UTC with microseconds: what PostgreSQL keeps.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// Event is the value of a DeviceStateChanged record. It is complete without a look-up.
type Event struct {
	MessageID  [16]byte // UUIDv7; also the CloudEvents id
	Device     string
	Hub        string
	Stream     string
	Epoch      int64
	Sequence   int64
	OccurredAt time.Time // zero when the device time is missing or suspect
	ReceivedAt time.Time
	Counter    Number
	Boot       Number
	Marks      Marks
	Missed     int64 // running totals of the stream
	Late       int64
	Duplicate  int64
	Rejected   int64
	State      []byte // JSON
}

// EventOf is the event of an emitting decision about r.
func EventOf(id [16]byte, r *Report, d *Decision) Event {
	s := &d.State
	return Event{
		MessageID: id, Device: r.Device, Hub: s.Hub, Stream: r.Stream,
		Epoch: s.Epoch, Sequence: s.Sequence, OccurredAt: s.OccurredAt, ReceivedAt: r.ReceivedAt,
		Counter: s.Counter, Boot: s.Boot, Marks: d.Marks,
		Missed: s.Missed, Late: s.Late, Duplicate: s.Duplicate, Rejected: s.Quarantined, State: s.Content,
	}
}

// Restate is the event that says the current state again under the next sequence: compensation, an owed event, or a
// stream's first event of a new epoch. It returns the moved state too. ReceivedAt stays: saying it again makes nothing fresh.
func Restate(id [16]byte, device, stream string, s State, now time.Time) (Event, State) {
	s.Sequence++
	s.EmittedAt, s.Owed = now, false
	r := Report{Device: device, Stream: stream, ReceivedAt: s.ReceivedAt}
	d := Decision{Class: Applied, Marks: MarkRestated | s.marks(), State: s}
	return EventOf(id, &r, &d), s
}

func (s *State) marks() Marks {
	var m Marks
	if s.ClockSuspect {
		m |= MarkClockSuspect
	}
	if s.Retained {
		m |= MarkRetained
	}
	return m
}

// Source is the CloudEvents source of a hub's events.
func Source(hub string) string { return "/hubs/" + hub }

// AppendEvent appends the JSON value of e to dst. It cannot fail: ids and state were validated by Match and Parse.
func AppendEvent(dst []byte, e *Event) []byte {
	dst = append(dst, `{"message_id":"`...)
	dst = AppendUUID(dst, e.MessageID)
	dst = appendString(append(dst, `","device_id":`...), e.Device)
	dst = appendString(append(dst, `,"hub_id":`...), e.Hub)
	dst = appendString(append(dst, `,"stream":`...), e.Stream)
	dst = strconv.AppendInt(append(dst, `,"epoch":`...), e.Epoch, 10)
	dst = strconv.AppendInt(append(dst, `,"sequence":`...), e.Sequence, 10)
	dst = appendTime(append(dst, `,"occurred_at":`...), e.OccurredAt)
	dst = appendTime(append(dst, `,"received_at":`...), e.ReceivedAt)
	dst = appendNumber(append(dst, `,"counter":`...), e.Counter)
	dst = appendNumber(append(dst, `,"boot":`...), e.Boot)
	dst = appendMarks(append(dst, `,"marks":[`...), e.Marks)
	dst = strconv.AppendInt(append(dst, `],"totals":{"missed":`...), e.Missed, 10)
	dst = strconv.AppendInt(append(dst, `,"late":`...), e.Late, 10)
	dst = strconv.AppendInt(append(dst, `,"duplicate":`...), e.Duplicate, 10)
	dst = strconv.AppendInt(append(dst, `,"quarantined":`...), e.Rejected, 10)
	dst = append(dst, `},"state":`...)
	return append(append(dst, e.State...), '}')
}

func appendNumber(dst []byte, n Number) []byte {
	if !n.OK {
		return append(dst, "null"...)
	}
	return strconv.AppendInt(dst, n.V, 10)
}

func appendTime(dst []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(dst, "null"...)
	}
	return append(t.UTC().AppendFormat(append(dst, '"'), timeLayout), '"')
}

func appendMarks(dst []byte, m Marks) []byte {
	first := true
	for i, name := range markNames {
		if !m.Has(1 << i) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), name...), '"')
	}
	return dst
}

const hexDigits = "0123456789abcdef"

// AppendUUID appends the canonical text of id.
func AppendUUID(dst []byte, id [16]byte) []byte {
	for i, b := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[b>>4], hexDigits[b&15])
	}
	return dst
}

// appendString appends s as a JSON string; invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}
