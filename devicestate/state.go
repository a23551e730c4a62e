package devicestate

import "time"

// State is what is stored of a stream: its latest content and the numbers that judge the next report.
// Instants are zero when unknown.
type State struct {
	Hub      string
	Epoch    int64 // 1 at first
	Sequence int64 // of the last emitted event; 0 = none yet

	Counter Number // of the last applied (or discarded) report
	Boot    Number

	BootStartedAt  time.Time // device time of the first report after the last reboot, when plausible
	BootReceivedAt time.Time // our time of it; zero when no reboot was seen

	OccurredAt   time.Time // device time of the last applied report, when plausible
	ReceivedAt   time.Time // our time of the last applied live report: freshness and silence are measured from here
	ClockSuspect bool
	Retained     bool
	Skew         time.Duration // ReceivedAt - OccurredAt of the last live report
	SkewKnown    bool

	Content     []byte // compact JSON
	Hash        Hash
	EmittedHash Hash // of the last event, what `emit: changed` compares
	EmittedAt   time.Time

	Missed, Late, Duplicate, Quarantined int64 // running totals

	RebootPending bool // an operator's accept-reboot: the next report starts a boot
	Owed          bool // an event was withheld above the outbox cap
}

// plausible says whether a device time may be believed at all: not before 2000, not further ahead than maxSkew.
func plausible(t, now time.Time, maxSkew time.Duration) bool {
	return !t.Before(year2000) && !t.After(now.Add(maxSkew))
}

var year2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
