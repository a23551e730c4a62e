package devicestate

import (
	"errors"
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
	f.locate()
	e := Event{
		MessageID:  f.uuid(fieldMessageID),
		Device:     f.str(fieldDevice),
		Hub:        f.str(fieldHub),
		Stream:     f.str(fieldStream),
		Epoch:      f.required(fieldEpoch),
		Sequence:   f.required(fieldSequence),
		OccurredAt: f.instant(fieldOccurredAt, true),
		ReceivedAt: f.instant(fieldReceivedAt, false),
		Counter:    f.number(fieldCounter),
		Boot:       f.number(fieldBoot),
		Marks:      f.marks(),
		State:      f.raw(fieldState),
	}
	f.totals(&e)
	if f.err != nil {
		return Event{}, f.err
	}
	return e, nil
}

// field is a known member of the top object.
type field int

const (
	fieldMessageID field = iota
	fieldDevice
	fieldHub
	fieldStream
	fieldEpoch
	fieldSequence
	fieldOccurredAt
	fieldReceivedAt
	fieldCounter
	fieldBoot
	fieldMarks
	fieldState
	fieldTotals
	fieldCount
)

var fieldNames = [fieldCount]string{
	"message_id", "device_id", "hub_id", "stream", "epoch", "sequence", "occurred_at", "received_at", "counter", "boot", "marks", "state", "totals",
}

func (f field) String() string { return fieldNames[f] }

// fields reads members of the top object and keeps the first error.
type fields struct {
	doc *document
	at  [fieldCount]int32 // index of each known member's value; -1 = missing
	err error
}

// locate finds all known members in one walk.
func (f *fields) locate() {
	for i := range f.at {
		f.at[i] = -1
	}
	if f.doc.values[0].kind != '{' {
		return
	}
	for i := 1; i < int(f.doc.values[0].end); i = int(f.doc.values[i].end) {
		if known := fieldOf(f.doc.rawKey(&f.doc.values[i])); known < fieldCount {
			f.at[known] = int32(i)
		}
	}
}

// fieldOf is fieldCount for a member that is not known.
func fieldOf(key []byte) field {
	for f, name := range &fieldNames {
		if len(name) == len(key) && name == string(key) {
			return field(f)
		}
	}
	return fieldCount
}

func (f *fields) fail(name, why string) {
	if f.err == nil {
		f.err = &DecodeError{name, why}
	}
}

func (f *fields) find(name field) int { return int(f.at[name]) }

func (f *fields) raw(name field) []byte {
	i := f.find(name)
	if i < 0 {
		f.fail(name.String(), "is missing")
		return nil
	}
	return f.doc.text(i)
}

func (f *fields) str(name field) string {
	s, ok := f.doc.str(f.find(name))
	if !ok || s == "" {
		f.fail(name.String(), "must be a non-empty string")
	}
	return s
}

func (f *fields) required(name field) int64 {
	n := f.number(name)
	if !n.OK || n.V < 1 {
		f.fail(name.String(), "must be a whole number of at least 1")
	}
	return n.V
}

func (f *fields) number(name field) Number { return f.numberAt(name.String(), f.find(name)) }

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

func (f *fields) instant(name field, optional bool) time.Time {
	i := f.find(name)
	if optional && (i < 0 || f.doc.values[i].kind == 'n') {
		return time.Time{}
	}
	s, _ := f.doc.str(i)
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		f.fail(name.String(), "must be an RFC 3339 time")
	}
	return t
}

func (f *fields) uuid(name field) [16]byte {
	id, err := ParseUUID(f.str(name))
	if err != nil {
		f.fail(name.String(), err.Error())
	}
	return id
}

// marks ignores names it does not know: a newer writer may add some.
func (f *fields) marks() Marks {
	i := f.find(fieldMarks)
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
	totals := f.find(fieldTotals)
	if totals < 0 || f.doc.values[totals].kind != '{' {
		return
	}
	read := func(name string) int64 { return f.numberAt("totals."+name, f.doc.member(totals, name)).V }
	e.Missed, e.Late, e.Duplicate, e.Rejected = read("missed"), read("late"), read("duplicate"), read("quarantined")
}

// ParseUUID reads the canonical text of a UUID.
func ParseUUID(s string) ([16]byte, error) {
	var id [16]byte
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, errUUID
	}
	for n, i := range [len(id)]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34} {
		high, low := unhex(s[i]), unhex(s[i+1])
		if high|low > 15 {
			return id, errUUID
		}
		id[n] = high<<4 | low
	}
	return id, nil
}

var errUUID = errors.New("must be a UUID")

// unhex is above 15 for what is no hexadecimal digit.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}
