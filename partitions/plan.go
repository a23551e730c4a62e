package partitions

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// maxRounds is how many plans a turn carries out at most: sealing leads to archiving, and that to dropping.
const maxRounds = 6

// expireEvery is how often rows are deleted by age.
const expireEvery = time.Hour

// Plan decides what one turn of the maintainer does. It is pure: the same state, time and spec give the same actions, in
// the order in which they are to be done. now is the database's clock. The spec's zero fields have their defaults.
func Plan(state State, now time.Time, spec Spec) []Action {
	p := &planner{State: state, Spec: spec.withDefaults(), now: now, at: later(now, state.Floor)}
	p.Partitions = slices.Clone(state.Partitions)
	slices.SortFunc(p.Partitions, func(a, b Partition) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Name, b.Name))
	})
	p.repair()
	p.runway()
	p.seal()
	p.shelve()
	p.archive()
	p.drop()
	p.expire()
	return p.actions
}

// Steady returns since when the clock has run without a jump, seen from a turn at now: a step back, or forward by more
// than spec.Settle since the last turn, begins anew. (A maintainer that was away for longer looks the same: what would
// be sealed or dropped then waits for one Settle more.)
func (s State) Steady(now time.Time, spec Spec) time.Time {
	spec = spec.withDefaults()
	if s.TickedAt.IsZero() || spec.Settle == 0 {
		return s.SteadySince
	}
	if now.Before(s.TickedAt) || now.Sub(s.TickedAt) > spec.Settle {
		return now
	}
	return s.SteadySince
}

// planner collects the actions of one plan.
type planner struct {
	State
	Spec
	now     time.Time
	at      time.Time // where the next row is created: never below the floor, whatever the clock says
	actions []Action
}

func (p *planner) add(kind Kind, name string, r span, reason string, args ...any) {
	p.actions = append(p.actions, Action{Kind: kind, Partition: name, From: r.From, To: r.To, Reason: fmt.Sprintf(reason, args...)})
}

// unsettled says why a decision that rests on the clock must wait, or "".
func (p *planner) unsettled() string {
	since := p.Steady(p.now, p.Spec)
	if since.IsZero() || p.now.Sub(since) >= p.Settle {
		return ""
	}
	return fmt.Sprintf("the clock jumped or nobody looked after partitions until %s; waits until %s", stamp(since), stamp(since.Add(p.Settle)))
}

// repair plans what an interrupted turn, or a hand, left behind.
func (p *planner) repair() {
	for i := range p.Partitions {
		part := &p.Partitions[i]
		switch {
		case part.Place == Detaching || part.Place == LeavingHistory:
			p.add(Finalize, part.Name, part.span(), "its concurrent detach was interrupted")
		case part.Place == Absent:
			p.add(Forget, part.Name, part.span(), "the ledger has it as %s but the table is gone", part.Phase)
		case part.Phase == "":
			p.add(Adopt, part.Name, part.span(), "it is attached but not in the ledger")
		case part.Phase == Live && part.Place == Alone:
			p.add(Attach, part.Name, part.span(), "it was detached by hand and may hold rows that are not published")
		}
	}
}

// runway plans the tables from the current range to the end of the runway: wanted ones are made, those in the way of
// the grid discarded, the current and the next two attached.
func (p *planner) runway() {
	wanted := p.wanted()
	for i := range p.Partitions {
		part := &p.Partitions[i]
		if part.Phase == Ahead && part.Place == Alone {
			p.discardUnlessWanted(part, wanted)
		}
	}
	for _, r := range wanted {
		if p.find(r) == nil {
			p.add(Create, p.nameOf(r), r, "the runway reaches to %s", stamp(p.at.Add(p.Runway)))
		}
	}
	for i, r := range wanted[:attachAhead+1] {
		if part := p.find(r); part == nil || part.Phase == Ahead {
			p.add(Attach, p.nameOf(r), r, "%s", [...]string{"it is the current one", "it is the next one", "it is the one after the next"}[i])
		}
	}
}

// wanted lists the ranges from the current one to the end of the runway, without holes. Ranges that may hold rows are
// taken as they are; between them the grid of the interval rules.
func (p *planner) wanted() []span {
	var fixed, wanted []span
	for i := range p.Partitions {
		if part := &p.Partitions[i]; part.fixed() {
			fixed = append(fixed, part.span())
		}
	}
	end := p.at.Add(p.Runway)
	for t := p.at; len(wanted) <= attachAhead || t.Before(end); t = wanted[len(wanted)-1].To {
		if i := slices.IndexFunc(fixed, func(r span) bool { return r.covers(t) }); i >= 0 {
			wanted = append(wanted, fixed[i])
			continue
		}
		r := p.free(t, p.Floor, fixed)
		if n := len(wanted); n > 0 {
			r.From = later(r.From, wanted[n-1].To)
		}
		wanted = append(wanted, r)
	}
	return wanted
}

func (p *planner) discardUnlessWanted(part *Partition, wanted []span) {
	r := part.span()
	switch {
	case slices.ContainsFunc(wanted, r.equal):
	case slices.ContainsFunc(wanted, r.overlaps):
		p.add(Discard, part.Name, r, "it does not fit the interval of %s", p.Interval)
	case r.endedAt(p.at) && p.unsettled() != "": // it may be its time again when the clock is set right
	case r.endedAt(p.at):
		p.add(Discard, part.Name, r, "its time passed without a row")
	case !r.equal(p.slot(r.From)): // beyond the runway
		p.add(Discard, part.Name, r, "it does not fit the interval of %s", p.Interval)
	}
}

func (p *planner) find(r span) *Partition {
	i := slices.IndexFunc(p.Partitions, func(part Partition) bool {
		return part.span().equal(r) && part.Phase != Dropped && part.Place != Absent
	})
	if i < 0 {
		return nil
	}
	return &p.Partitions[i]
}

// seal plans the ended partitions out of the parent, each judged alone: a stalled bucket holds only those that have
// rows of it.
func (p *planner) seal() {
	var ended []*Partition
	for i := range p.Partitions {
		part := &p.Partitions[i]
		if part.Place == Alone && part.Phase == Sealing {
			p.add(Seal, part.Name, part.span(), "it was detached but not recorded as sealed")
		}
		if part.Place == Attached && part.endedAt(p.at) {
			ended = append(ended, part)
		}
	}
	for _, part := range ended[:max(0, len(ended)-p.KeepAttached)] {
		p.sealEnded(part)
	}
}

func (p *planner) sealEnded(part *Partition) {
	switch why := p.unsettled(); {
	case part.Undrained != "":
		p.add(Wait, part.Name, part.span(), "ended, still attached: %s", part.Undrained)
	case why != "":
		p.add(Wait, part.Name, part.span(), "ended, not sealed yet: %s", why)
	default:
		p.add(Seal, part.Name, part.span(), "it ended and every row of it is decided")
	}
}

func (p *planner) shelve() {
	for i := range p.Partitions {
		part := &p.Partitions[i]
		if part.Place == Alone && (part.Phase == Sealed || part.Phase == Archived) && !p.due(part) {
			p.add(Shelve, part.Name, part.span(), "it is sealed but not in the history")
		}
	}
}

func (p *planner) archive() {
	if !p.Archive {
		return
	}
	for i := range p.Partitions {
		part := &p.Partitions[i]
		if part.Phase != Sealed || part.Place == Absent {
			continue
		}
		if part.NextAttemptAt.After(p.now) {
			p.add(Wait, part.Name, part.span(), "archive failed in attempt %d, next try at %s: %s", part.Attempts, stamp(part.NextAttemptAt), part.LastError)
			continue
		}
		p.add(Archive, part.Name, part.span(), "it is sealed and has no archive")
	}
}

// due reports whether p has been kept for as long as it is to be kept. By the clock, not the floor: a clock that is
// behind keeps longer.
func (p *planner) due(part *Partition) bool { return !part.To.Add(p.RetainSent).After(p.now) }

func (p *planner) drop() {
	for i := range p.Partitions {
		part := &p.Partitions[i]
		if (part.Phase == Sealed || part.Phase == Archived) && part.Place != Absent && p.due(part) {
			p.dropDue(part)
		}
	}
}

func (p *planner) dropDue(part *Partition) {
	reason := fmt.Sprintf("it ended more than %s ago", days(p.RetainSent))
	switch why := p.unsettled(); {
	case p.Archive && part.Phase == Sealed:
		p.add(Wait, part.Name, part.span(), "%s but has no archive yet: it stays", reason)
	case why != "":
		p.add(Wait, part.Name, part.span(), "%s, not dropped yet: %s", reason, why)
	case p.KeepAll:
		p.add(Wait, part.Name, part.span(), "%s; drops are switched off", reason)
	default:
		p.add(Drop, part.Name, part.span(), "%s", reason)
	}
}

func (p *planner) expire() {
	age := p.now.Sub(p.ExpiredAt)
	if p.KeepAll || p.unsettled() != "" || age >= 0 && age < expireEvery {
		return
	}
	for _, r := range p.Retain {
		if r.Keep > 0 {
			p.actions = append(p.actions, Action{Kind: Expire, Subject: r.Subject, Before: p.now.Add(-r.Keep), Reason: "kept for " + days(r.Keep)})
		}
	}
}

// days writes a duration as a person would: whole days as such.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.String()
}
