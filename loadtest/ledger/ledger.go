// Package ledger remembers what the fleet did: every report a device sent, what it was meant to be, and whether the
// broker acknowledged it. It is one side of the comparison; what the pipeline says is the other. It imports nothing of
// the product.
//
// A report's number is its place in the stream's list, counted from 1. The number travels in the report's state, so any
// copy of it, in a table or on the topic, names its line here without help from counters or sequences.
package ledger

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Kind is what a report was meant to be. The fleet decides it when it makes the report; nobody derives it later.
type Kind uint8

// The kinds. A Reboot is the first of a new boot; Resend is the report before it once more, byte for byte; Straggler is
// an older one once more; Conflict has the counter and time of the report before it and another content; Poison cannot
// be read.
const (
	Next Kind = iota
	Reboot
	Resend
	Straggler
	Conflict
	Poison
)

var kindNames = [...]string{"next", "reboot", "resend", "straggler", "conflict", "poison"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Moves reports whether a report of this kind must move the state of its stream.
func (k Kind) Moves() bool { return k == Next || k == Reboot }

// Rejected reports whether a report of this kind must end in quarantine.
func (k Kind) Rejected() bool { return k == Conflict || k == Poison }

// Report is one line of the ledger.
type Report struct {
	Due     int64  // nanoseconds after the fleet's start at which the device wanted to send it
	Counter int64  // the device's own number
	Boot    int32  // the device's boot
	Of      uint32 // with Resend and Straggler: the number of the report whose bytes are sent again
	Size    uint16 // bytes of padding in the state
	Kind    Kind
	Acked   bool // the broker sent PUBACK
	Late    bool // sent long after it was due because the device was offline: no sample of latency
}

// Stream is all that one device sent on one stream.
type Stream struct {
	Device string
	Hub    string
	Name   string

	mu      sync.Mutex
	Reports []Report // guarded by mu while the fleet runs
}

// Append adds a report and returns its number.
func (s *Stream) Append(r Report) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Reports = append(s.Reports, r)
	return uint32(len(s.Reports))
}

// Report returns a copy of line number, and whether there is one.
func (s *Stream) Report(number uint32) (Report, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number == 0 || int(number) > len(s.Reports) {
		return Report{}, false
	}
	return s.Reports[number-1], true
}

// Ack marks line number as acknowledged and reports whether it was not before.
func (s *Stream) Ack(number uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.Reports[number-1]
	first := !r.Acked
	r.Acked = true
	return first
}

// Ledger is the memory of a whole fleet.
type Ledger struct {
	Scenario string
	Seed     uint64
	Start    time.Time // Due counts from here
	Streams  []*Stream

	byKey map[Key]int
}

// Key names a stream.
type Key struct{ Device, Stream string }

func (k Key) String() string { return k.Device + " " + k.Stream }

// New is an empty ledger for the given streams.
func New(scenario string, seed uint64, start time.Time, streams []*Stream) *Ledger {
	l := &Ledger{Scenario: scenario, Seed: seed, Start: start, Streams: streams}
	l.index()
	return l
}

func (l *Ledger) index() {
	l.byKey = make(map[Key]int, len(l.Streams))
	for i, s := range l.Streams {
		l.byKey[Key{s.Device, s.Name}] = i
	}
}

// Find returns the index of a stream, or -1.
func (l *Ledger) Find(device, stream string) int {
	if i, ok := l.byKey[Key{device, stream}]; ok {
		return i
	}
	return -1
}

// Totals counts reports sent and acknowledged.
func (l *Ledger) Totals() (published, acknowledged int64) {
	for _, s := range l.Streams {
		s.mu.Lock()
		published += int64(len(s.Reports))
		for i := range s.Reports {
			if s.Reports[i].Acked {
				acknowledged++
			}
		}
		s.mu.Unlock()
	}
	return published, acknowledged
}

// DueAt is the instant at which r was due.
func (l *Ledger) DueAt(r Report) time.Time { return l.Start.Add(time.Duration(r.Due)) }

// Validate reports lines that refer to nothing, as a damaged file has them.
func (l *Ledger) Validate() error {
	for _, s := range l.Streams {
		for i, r := range s.Reports {
			if again := r.Kind == Resend || r.Kind == Straggler; again && (r.Of == 0 || int(r.Of) > i) {
				return fmt.Errorf("ledger: %s %s: report %d repeats report %d", s.Device, s.Name, i+1, r.Of)
			}
		}
	}
	return nil
}

// MarkLate marks line number as sent long after it was due.
func (s *Stream) MarkLate(number uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Reports[number-1].Late = true
}

// LastMove is the number of the last report that must move the state; 0 when there is none.
func (s *Stream) LastMove() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range slices.Backward(s.Reports) {
		if r.Kind.Moves() {
			return uint32(i + 1)
		}
	}
	return 0
}
