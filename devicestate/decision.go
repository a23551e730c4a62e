package devicestate

import "strings"

// Class is what became of a report (N4). Every report has exactly one.
type Class uint8

// The classes.
const (
	Applied     Class = iota + 1
	Duplicate         // known already
	Late              // older than what is known
	Coalesced         // folded into a later report of the same batch; the state moved, no event
	Discarded         // old, by policy: the counter advanced, nothing else
	Ignored           // by topic: not for us
	Quarantined       // stored in ingest_reject
)

var classNames = [...]string{"", "applied", "duplicate", "late", "coalesced", "discarded", "ignored", "quarantined"}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

// Marks say what was special about an applied report; they travel in the event.
type Marks uint8

// The marks.
const (
	MarkReboot       Marks = 1 << iota // the device's counter started again
	MarkWrap                           // the counter wrapped at its modulus
	MarkClockSuspect                   // the device time is missing its plausibility: see State.ClockSuspect
	MarkRetained                       // from a retained copy: not a sign of life
	MarkHeartbeat                      // content unchanged; sent so that the stream stays visible
	MarkRestated                       // the current state, sent again by an operator or after a rebase
)

var markNames = [...]string{"reboot", "wrap", "clock_suspect", "retained", "heartbeat", "restated"}

// Has reports whether all of m2 are in m.
func (m Marks) Has(m2 Marks) bool { return m&m2 == m2 }

func (m Marks) String() string {
	var names []string
	for i, n := range markNames {
		if m.Has(1 << i) {
			names = append(names, n)
		}
	}
	return strings.Join(names, ",")
}

// Range is an inclusive range of a device's counters that never reached us.
type Range struct{ From, To int64 }

// Size is how many counters the range holds.
func (r Range) Size() int64 { return r.To - r.From + 1 }

// Decision is what one report does to its stream.
type Decision struct {
	Class   Class
	Row     int     // the row of the table that decided
	Reject  *Reject // with Quarantined
	Marks   Marks
	Gaps    []Range // counters missing before an applied report; two ranges when the counter wrapped
	Old     bool    // the report was buffered on the device (on_old looks at it)
	Emit    bool    // an event with State.Sequence is to be appended
	Filled  Number  // a late report's counter: it may close a gap
	State   State   // after the report
	Changed bool    // State must be written
}
