package monitor

import "time"

// Status answers one question only: do we hear the device? It never mixes in the pipeline (see Horizon) or the clock.
type Status string

// The statuses. A device has exactly one.
const (
	Fresh           Status = "fresh"            // every stream that is expected has reported in time
	Silent          Status = "silent"           // a stream is overdue, and we would have seen its report
	ConnectedSilent Status = "connected_silent" // the same, though the device's connection stream says it is connected
	NeverSeen       Status = "never_seen"       // known, but not one live report of an expected stream ever came
	Unknown         Status = "unknown"          // overdue by the clock, but this screen has not seen far enough to say so
)

// Statuses lists every status in the order of a screen: what is right first.
func Statuses() []Status { return []Status{Fresh, Unknown, Silent, ConnectedSilent, NeverSeen} }

// Link is what the device's connection stream said last.
type Link string

// The links.
const (
	LinkUnknown Link = ""
	LinkUp      Link = "up"
	LinkDown    Link = "down"
)

// Sign is the last sign of life of one stream: LiveAt is our receive time of its last live report (zero: there was
// none; retained copies do not count), Expect how long it may be quiet (zero: nothing is expected of it).
type Sign struct {
	LiveAt time.Time
	Expect time.Duration
}

// Due is the instant at which the first of the streams becomes silent; zero when no expected stream was ever heard.
// A stream that was never heard does not make a device silent whose other streams are: it may not have that stream.
func Due(signs []Sign) time.Time {
	var due time.Time
	for _, s := range signs {
		if s.Expect <= 0 || s.LiveAt.IsZero() {
			continue
		}
		if at := s.LiveAt.Add(s.Expect); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return due
}

// Judge decides the status of a device. due is as Due returns it. asOf is the instant up to which this screen has seen
// everything that came (Horizon.SeenUntil): a device that became overdue after it may have reported long ago, in
// records that still lie between us and it, so nobody may call it silent.
func Judge(due time.Time, link Link, asOf, now time.Time) Status {
	switch {
	case due.IsZero():
		return NeverSeen
	case due.After(now):
		return Fresh
	case due.After(asOf):
		return Unknown
	case link == LinkUp:
		return ConnectedSilent
	}
	return Silent
}

// Live is the receive time that counts as a sign of life: never later than now (an ingester whose clock runs ahead must
// not make a device fresh in the future) and never earlier than what we knew (replays and backlogs move nothing back).
func Live(known, received, now time.Time) time.Time {
	if received.After(now) {
		received = now
	}
	if received.Before(known) {
		return known
	}
	return received
}
