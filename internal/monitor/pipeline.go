package monitor

import "time"

// Health is whether one part answers, and since when it is so.
type Health struct {
	OK     bool      `json:"ok"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

// set keeps Since while the answer stays the same.
func (h *Health) set(err error, now time.Time) {
	if ok := err == nil; ok != h.OK || h.Since.IsZero() {
		h.OK, h.Since = ok, now
	}
	h.Reason = ""
	if err != nil {
		h.Reason = err.Error()
	}
}

// Pipeline is what lies between a device's report and this screen.
type Pipeline struct {
	Kafka    Health  `json:"kafka"`
	View     Health  `json:"view"` // Redis
	Consumer Health  `json:"consumer"`
	Lag      int64   `json:"lag_records"`
	Outbox   *Outbox `json:"outbox,omitempty"` // absent: no database is watched, nothing is known of what lies before Kafka
}

// Outbox is one cell's database: what waits there and who works on it.
type Outbox struct {
	Health
	OldestMs      int64         `json:"oldest_unpublished_ms"` // 0: nothing waits
	Pending       int64         `json:"pending"`
	PendingAtMost bool          `json:"pending_is_lower_bound"`
	Buckets       int64         `json:"buckets"`
	Unowned       int64         `json:"buckets_without_relay"`
	Halted        int64         `json:"buckets_halted"`
	Outage        int64         `json:"buckets_in_outage"`
	ErrorCode     string        `json:"outage_code,omitempty"`
	Relays        int64         `json:"relays"`
	Lanes         int64         `json:"lanes"`
	LanesAlive    int64         `json:"lanes_alive"`
	LanesDown     string        `json:"lanes_down,omitempty"`
	Dead          int64         `json:"dead"`
	Held          int64         `json:"held"`
	DeadOldestMs  int64         `json:"dead_oldest_ms"`
	Rejects       []ReasonCount `json:"rejects_last_hour"`
	PossibleGaps  int64         `json:"possible_gaps_last_hour"`
	AskedAt       time.Time     `json:"asked_at,omitzero"` // when the database gave this answer
}

// ReasonCount is how many reports were rejected for one reason.
type ReasonCount struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// answered reports whether the database ever said how far it is; one that is not watched need not.
func (o *Outbox) answered() bool { return o == nil || !o.AskedAt.IsZero() }

// oldestUnpublished is the instant, by our clock, from which on rows may still wait. A database that does not answer
// vouches for nothing later than its last answer.
func (o *Outbox) oldestUnpublished() time.Time {
	switch {
	case o == nil:
		return time.Time{}
	case !o.AskedAt.IsZero() && o.OldestMs > 0:
		return o.AskedAt.Add(-time.Duration(o.OldestMs) * time.Millisecond)
	}
	return o.AskedAt
}
