package devicestate

import "time"

// Next decides what report r does to a stream whose stored state is prev (nil: never seen), at the instant now (the
// ingester's clock). It is the table of docs/architecture.md "Next" and nothing else: the first row that matches wins,
// no other code moves state (D1). It neither emits nor numbers: Fold does. p must have its defaults.
func Next(prev *State, r *Report, now time.Time, p *StreamPolicy) Decision {
	c := newCase(prev, r, now, p)
	if prev != nil && prev.Hub != r.Hub {
		return c.quarantine(0, reject(ReasonHubConflict, "hub", "the device belongs to hub %s; move it with `ingest move`", prev.Hub))
	}
	if r.Reject != nil {
		return c.quarantine(1, r.Reject)
	}
	if p.Kind == KindConnection {
		return c.connection()
	}
	if p.Counter == CounterRequired && !r.Counter.OK {
		return c.quarantine(1, reject(ReasonCounterMissing, p.Fields.Counter, "required, but absent"))
	}
	if prev == nil {
		return c.apply(3, 0)
	}
	if prev.RebootPending {
		return c.apply(4, MarkReboot)
	}
	switch c.compareBoots() {
	case 1:
		return c.apply(5, MarkReboot)
	case -1:
		return c.late(6)
	}
	if !c.counted() {
		return c.uncounted()
	}
	return c.byCounter()
}

// comparison holds the facts that the rows ask about.
type comparison struct {
	prev *State
	r    *Report
	now  time.Time
	p    *StreamPolicy

	plausible bool // r.Time is present and may be believed
	suspect   bool // a time was sent and may not be believed
	known     bool // both times are plausible, so they can be compared
	newer     bool // known, and r's is after prev's
	older     bool
	same      bool // content
}

func newCase(prev *State, r *Report, now time.Time, p *StreamPolicy) comparison {
	c := comparison{prev: prev, r: r, now: now, p: p}
	sent := r.BadTime || !r.Time.IsZero()
	c.plausible = sent && !r.BadTime && plausible(r.Time, now, p.MaxSkew)
	c.suspect = sent && !c.plausible
	if prev == nil {
		return c
	}
	c.same = prev.Hash == r.Hash
	c.known = c.plausible && !prev.OccurredAt.IsZero()
	c.newer = c.known && r.Time.After(prev.OccurredAt)
	c.older = c.known && r.Time.Before(prev.OccurredAt)
	return c
}

// connection is row 2: births and last wills. A will carries an old counter and the time of connecting and is the truth.
func (c comparison) connection() Decision {
	if c.prev != nil && (c.r.Redelivered || c.same) {
		return c.duplicate(2)
	}
	if c.prev == nil {
		return c.apply(3, 0)
	}
	return c.apply(2, 0)
}

// compareBoots is -1, 0 or +1 as r's boot is before, the same as or after the stored one. Absent on either side is the same.
func (c comparison) compareBoots() int {
	if !c.r.Boot.OK || !c.prev.Boot.OK || c.r.Boot.V == c.prev.Boot.V {
		return 0
	}
	ahead := c.r.Boot.V > c.prev.Boot.V
	if m := c.p.BootModulus; m > 0 {
		ahead = wrapped(c.prev.Boot.V, c.r.Boot.V, m) < m/2
	}
	if ahead {
		return 1
	}
	return -1
}

// wrapped is the distance forward from a to b for numbers that start again at modulus.
func wrapped(a, b, modulus int64) int64 {
	return ((b-a)%modulus + modulus) % modulus
}

func (c comparison) counted() bool {
	return c.p.Counter != CounterNone && c.r.Counter.OK && c.prev.Counter.OK
}

// uncounted is rows 7 to 9. Equal content without comparable times is a sign of life, not a duplicate: the lane's tail
// knows redeliveries, and a device that repeats itself is not silent. A retained copy is no sign of life.
func (c comparison) uncounted() Decision {
	switch {
	case c.r.Redelivered, c.same && c.known && !c.newer, c.same && c.r.Retained:
		return c.duplicate(7)
	case c.older:
		return c.late(8)
	}
	return c.apply(9, 0)
}

func (c comparison) byCounter() Decision {
	last, got := c.prev.Counter.V, c.r.Counter.V
	switch {
	case got == last:
		return c.equalCounter()
	case got < last:
		return c.lowerCounter()
	case c.straggler(), c.beforeWrap(last, got):
		return c.late(13)
	}
	d := c.apply(14, 0)
	if got > last+1 {
		d.addGap(last+1, got-1)
	}
	return d
}

// equalCounter is rows 10 to 12.
func (c comparison) equalCounter() Decision {
	switch {
	case c.r.Redelivered:
		return c.duplicate(11)
	case c.newer:
		return c.apply(10, MarkReboot)
	case c.same:
		return c.duplicate(11)
	}
	return c.quarantine(12, reject(ReasonConflict, c.p.Fields.Counter, "counter %d stands for another content and the device time is not newer", c.r.Counter.V))
}

// straggler is row 13: after a reboot the broker may still hold reports of the boot before, whose counters are higher.
func (c comparison) straggler() bool {
	start := c.prev.BootReceivedAt
	return !start.IsZero() && c.r.ReceivedAt.Sub(start) <= c.p.StragglerWindow &&
		c.plausible && !c.prev.BootStartedAt.IsZero() && c.r.Time.Before(c.prev.BootStartedAt)
}

// beforeWrap belongs to row 13: a copy from just before the counter wrapped looks like a jump of nearly the modulus.
func (c comparison) beforeWrap(last, got int64) bool {
	m := c.p.Modulus
	return m > 0 && got < m && wrapped(got, last, m) <= min(c.p.ResetWindow, m/4)
}

// lowerCounter is rows 15 to 18.
func (c comparison) lowerCounter() Decision {
	last, got := c.prev.Counter.V, c.r.Counter.V
	silent := c.r.ReceivedAt.Sub(c.prev.ReceivedAt) > c.p.ResetQuiet
	switch {
	case c.wrapsNear(last, got):
		return c.wrap(last, got)
	case c.newer && (got <= c.p.ResetWindow || silent):
		return c.apply(16, MarkReboot)
	case !c.known && silent:
		return c.apply(17, MarkReboot)
	}
	return c.late(18)
}

// wrapsNear is row 15: near its modulus a counter wraps; "small" is the reset window, so that a reboot far from the
// modulus stays a reboot.
func (c comparison) wrapsNear(last, got int64) bool {
	m := c.p.Modulus
	return m > 0 && last < m && !c.older && wrapped(last, got, m) <= min(c.p.ResetWindow, m/4)
}

func (c comparison) wrap(last, got int64) Decision {
	d := c.apply(15, MarkWrap)
	if last+1 < c.p.Modulus {
		d.addGap(last+1, c.p.Modulus-1)
	}
	if got > 0 {
		d.addGap(0, got-1)
	}
	return d
}

func (d *Decision) addGap(from, to int64) {
	r := Range{From: from, To: to}
	d.Gaps = append(d.Gaps, r)
	d.State.Missed += r.Size()
}
