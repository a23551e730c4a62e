package devicestate

import "time"

// Fold decides a batch of reports of one stream, in arrival order: Next for each, then on_old, then emit. It assigns the
// sequence: dense, +1 per decision with Emit (D2). The State of the last decision is what is to be stored.
// prev is nil for a stream never seen. p must have its defaults.
func Fold(prev *State, reports []Report, now time.Time, p *StreamPolicy) []Decision {
	return AppendFold(nil, prev, reports, now, p)
}

// AppendFold is Fold into dst.
func AppendFold(dst []Decision, prev *State, reports []Report, now time.Time, p *StreamPolicy) []Decision {
	start := len(dst)
	for i := range reports {
		d := Next(prev, &reports[i], now, p)
		if d.Class == Applied && d.Old && p.OnOld == OldDiscard {
			d = discard(prev, d)
		}
		dst = append(dst, d)
		if d.Changed {
			prev = &dst[len(dst)-1].State
		}
	}
	batch := dst[start:]
	if p.OnOld == OldLatest {
		coalesce(batch)
	}
	emit(batch, reports, p)
	return dst
}

// discard keeps what judges the next report and forgets the content: the device advanced, nothing is told.
func discard(prev *State, d Decision) Decision {
	s := *prev
	s.Counter, s.Boot, s.Missed = d.State.Counter, d.State.Boot, d.State.Missed
	s.BootStartedAt, s.BootReceivedAt, s.RebootPending = d.State.BootStartedAt, d.State.BootReceivedAt, false
	d.Class, d.State = Discarded, s
	return d
}

// coalesce leaves of the old applied reports only the last, unless a newer applied report follows it in the batch. What
// was special about a folded report is told by the one that stands for it.
func coalesce(batch []Decision) {
	defer carryMarks(batch)
	later := false
	for i := len(batch) - 1; i >= 0; i-- {
		d := &batch[i]
		if d.Class != Applied {
			continue
		}
		if d.Old && later {
			d.Class = Coalesced
		}
		later = true
	}
}

func carryMarks(batch []Decision) {
	var marks Marks
	for i := range batch {
		switch d := &batch[i]; d.Class {
		case Coalesced:
			marks |= d.Marks & (MarkReboot | MarkWrap)
		case Applied:
			d.Marks |= marks
			marks = 0
		}
	}
}

// emit walks the batch again with the sequence of the stream: Next's answers do not depend on what was emitted.
func emit(batch []Decision, reports []Report, p *StreamPolicy) {
	var at emission
	for i := range batch {
		d := &batch[i]
		if i == 0 {
			at = emissionOf(&d.State)
		}
		if d.Class == Applied {
			d.Emit = at.due(d, &reports[i], p)
		}
		if d.Emit {
			at.sequence++
			at.hash, at.at = reports[i].EmitHash, reports[i].ReceivedAt
		}
		d.State.Sequence, d.State.EmittedHash, d.State.EmittedAt = at.sequence, at.hash, at.at
	}
}

// emission is what is known of the last event of a stream.
type emission struct {
	sequence int64
	hash     Hash
	at       time.Time
}

func emissionOf(s *State) emission {
	return emission{sequence: s.Sequence, hash: s.EmittedHash, at: s.EmittedAt}
}

// due decides emit. A reboot is news even when the content is the same.
func (e emission) due(d *Decision, r *Report, p *StreamPolicy) bool {
	switch {
	case p.Emit == EmitNone:
		return false
	case p.Emit != EmitChanged, e.at.IsZero(), e.hash != r.EmitHash, d.Marks.Has(MarkReboot):
		return true
	case r.ReceivedAt.Sub(e.at) >= p.Heartbeat && !r.Retained:
		d.Marks |= MarkHeartbeat
		return true
	}
	return false
}
