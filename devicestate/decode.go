package devicestate

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// DecodeError says why a record's value is no DeviceStateChanged this package can read.
type DecodeError struct {
	Field string
	Why   string
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode %s: field %s: %s", EventType, e.Field, e.Why)
}

// decodeLimits are wider than ingest's: another writer's events may be larger, and unknown fields must be let through.
func decodeLimits() Limits { return Limits{Payload: 64 << 20, Depth: 1024, Exponent: 308} }

// Decoder reads event values. It reuses its buffers: not safe for concurrent use. The zero value is ready.
type Decoder struct{ doc document }

// DecodeEvent is Decoder.Decode with a decoder of its own; safe for concurrent use.
func DecodeEvent(value []byte) (Event, error) {
	var d Decoder
	return d.Decode(value)
}

// Decode reads the value of a DeviceStateChanged record of schema version 1. Unknown fields are ignored (a newer minor
// writer); a missing or mistyped known field is a *DecodeError, text that is no JSON a *Reject. State shares memory with value.
func (d *Decoder) Decode(value []byte) (Event, error) {
	if len(value) == 0 {
		return Event{}, &DecodeError{"(value)", "is empty"}
	}
	if err := scan(&d.doc, value, decodeLimits()); err != nil {
		return Event{}, err
	}
	f := fields{doc: &d.doc}
	e := Event{
		MessageID:  f.uuid("message_id"),
		Device:     f.str("device_id"),
		Hub:        f.str("hub_id"),
		Stream:     f.str("stream"),
		Epoch:      f.required("epoch"),
		Sequence:   f.required("sequence"),
		OccurredAt: f.instant("occurred_at", true),
		ReceivedAt: f.instant("received_at", false),
		Counter:    f.number("counter"),
		Boot:       f.number("boot"),
		Marks:      f.marks(),
		State:      f.raw("state"),
	}
	f.totals(&e)
	if f.err != nil {
		return Event{}, f.err
	}
	return e, nil
}

// fields reads members of the top object and keeps the first error.
type fields struct {
	doc *document
	err error
}

func (f *fields) fail(field, why string) {
	if f.err == nil {
		f.err = &DecodeError{field, why}
	}
}

func (f *fields) find(name string) int { return f.doc.find([]string{name}) }

func (f *fields) raw(name string) []byte {
	i := f.find(name)
	if i < 0 {
		f.fail(name, "is missing")
		return nil
	}
	return f.doc.text(i)
}

func (f *fields) str(name string) string {
	s, ok := f.doc.str(f.find(name))
	if !ok || s == "" {
		f.fail(name, "must be a non-empty string")
	}
	return s
}

func (f *fields) required(name string) int64 {
	n := f.number(name)
	if !n.OK || n.V < 1 {
		f.fail(name, "must be a whole number of at least 1")
	}
	return n.V
}

func (f *fields) number(name string) Number { return f.numberAt(name, f.find(name)) }

func (f *fields) numberAt(name string, i int) Number {
	if i < 0 || f.doc.values[i].kind == 'n' {
		return Number{}
	}
	v, err := strconv.ParseInt(string(f.doc.text(i)), 10, 64)
	if err != nil {
		f.fail(name, "must be a whole number or null")
		return Number{}
	}
	return Some(v)
}

func (f *fields) instant(name string, optional bool) time.Time {
	i := f.find(name)
	if optional && (i < 0 || f.doc.values[i].kind == 'n') {
		return time.Time{}
	}
	s, _ := f.doc.str(i)
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		f.fail(name, "must be an RFC 3339 time")
	}
	return t
}

func (f *fields) uuid(name string) [16]byte {
	id, err := ParseUUID(f.str(name))
	if err != nil {
		f.fail(name, err.Error())
	}
	return id
}

// marks ignores names it does not know: a newer writer may add some.
func (f *fields) marks() Marks {
	i := f.find("marks")
	if i < 0 {
		return 0
	}
	var m Marks
	for j := i + 1; j < int(f.doc.values[i].end); j = int(f.doc.values[j].end) {
		s, _ := f.doc.str(j)
		for bit, name := range markNames {
			if s == name {
				m |= 1 << bit
			}
		}
	}
	return m
}

func (f *fields) totals(e *Event) {
	read := func(name string) int64 {
		return f.numberAt("totals."+name, f.doc.find([]string{"totals", name})).V
	}
	e.Missed, e.Late, e.Duplicate, e.Rejected = read("missed"), read("late"), read("duplicate"), read("quarantined")
}

// ParseUUID reads the canonical text of a UUID.
func ParseUUID(s string) ([16]byte, error) {
	var id [16]byte
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, fmt.Errorf("must be a UUID")
	}
	if _, err := hex.Decode(id[:], []byte(s[:8]+s[9:13]+s[14:18]+s[19:23]+s[24:])); err != nil {
		return id, fmt.Errorf("must be a UUID")
	}
	return id, nil
}
