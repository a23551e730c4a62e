package devicestate

import "time"

// unchanged is the stored state with one running total moved; prev is never nil here except for quarantine.
func (c comparison) unchanged(class Class, row int) Decision {
	d := Decision{Class: class, Row: row}
	if c.prev != nil {
		d.State, d.Changed = *c.prev, true
	}
	return d
}

func (c comparison) quarantine(row int, why *Reject) Decision {
	d := c.unchanged(Quarantined, row)
	d.Reject = why
	d.State.Quarantined++
	return d
}

func (c comparison) duplicate(row int) Decision {
	d := c.unchanged(Duplicate, row)
	d.State.Duplicate++
	return d
}

func (c comparison) late(row int) Decision {
	d := c.unchanged(Late, row)
	d.State.Late++
	d.Filled = c.r.Counter
	return d
}

// apply moves the state to the report. A reboot starts a boot; a retained copy leaves the instant of the last sign of
// life alone; the skew of the clock is learnt from live reports only, so that a backlog does not look like a slow clock.
func (c comparison) apply(row int, marks Marks) Decision {
	d := Decision{Class: Applied, Row: row, Marks: marks, Changed: true}
	if c.prev != nil {
		d.State = *c.prev
	} else {
		d.State = State{Hub: c.r.Hub, Epoch: max(1, c.r.FirstEpoch)}
	}
	d.Old = c.old()
	s := &d.State
	c.moveClock(s, d.Old)
	c.moveNumbers(s, marks)
	s.Content, s.Hash, s.Retained, s.RebootPending = c.r.State, c.r.Hash, c.r.Retained, false
	if c.suspect {
		d.Marks |= MarkClockSuspect
	}
	if c.r.Retained {
		d.Marks |= MarkRetained
	}
	return d
}

func (c comparison) moveNumbers(s *State, marks Marks) {
	if c.r.Counter.OK {
		s.Counter = c.r.Counter
	}
	if c.r.Boot.OK {
		s.Boot = c.r.Boot
	}
	if !marks.Has(MarkReboot) {
		return
	}
	s.BootReceivedAt, s.BootStartedAt = c.r.ReceivedAt, time.Time{}
	if c.plausible {
		s.BootStartedAt = c.r.Time
	}
}

func (c comparison) moveClock(s *State, old bool) {
	s.OccurredAt = time.Time{}
	if c.plausible {
		s.OccurredAt = c.r.Time
	}
	s.ClockSuspect = c.suspect
	if c.r.Retained && c.prev != nil {
		return
	}
	s.ReceivedAt = c.r.ReceivedAt
	if c.plausible && !old && !c.r.Retained {
		s.Skew, s.SkewKnown = c.r.ReceivedAt.Sub(c.r.Time), true
	}
}

// old says whether the report was buffered while the device was offline: it is older than MaxAge, and the device's clock
// was right when last seen live (a slow clock makes every report look old, and is not).
func (c comparison) old() bool {
	return c.plausible && c.prev != nil && c.prev.SkewKnown && c.prev.Skew.Abs() <= c.p.MaxSkew &&
		c.r.ReceivedAt.Sub(c.r.Time) > c.p.MaxAge
}
