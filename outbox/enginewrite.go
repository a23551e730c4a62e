package outbox

import (
	"time"
)

// cursorPause is how long an acknowledgement may wait for its cursor write. A write costs the server a commit whatever it
// says, and at a light load each sweep would make one; what a crash leaves unwritten is found by the tail check.
const cursorPause = 50 * time.Millisecond

// persist hands the writer all cursors that moved and whatever else waits. One request is out at a time, so cursor
// writes batch by themselves: the faster groups are acknowledged, the more buckets one statement moves.
func (e *engine) persist(now time.Time) {
	if e.writing || now.Before(e.writeAt) || now.Before(e.persistFrom()) {
		return
	}
	var writes []bucketWrite
	for _, b := range e.buckets {
		if b.unwritten() {
			adv := b.pending
			b.pending = advance{}
			b.writing = true
			writes = append(writes, bucketWrite{bucket: b.id, term: b.term, advance: &adv})
		}
	}
	writes = append(writes, e.writes...)
	e.writes = nil
	if len(writes) == 0 {
		return
	}
	e.writing, e.persistAt = true, now.Add(cursorPause)
	e.jobs <- writes // buffered for one request: never blocks
}

// persistFrom is when the next write is due; zero is at once. Only plain cursors can wait: not what somebody waits for (a
// release, a plan, the end), and not a carried skip, which would be carried again by the next event of its stream.
func (e *engine) persistFrom() time.Time {
	if e.draining || len(e.writes) > 0 {
		return time.Time{}
	}
	for _, b := range e.buckets {
		if b.unwritten() && (b.releasing || b.planning || len(b.pending.carried) > 0) {
			return time.Time{}
		}
	}
	return e.persistAt
}

// confirm takes the writer's answer: what was written moves the cursor, what was not is either lost or tried again.
func (e *engine) confirm(r writeResult) {
	e.writing = false
	if r.err != nil {
		e.retryWrites(r)
		return
	}
	for i := range r.writes {
		w := &r.writes[i]
		if (w.release || w.halt != "") && e.leaving[w.bucket] == w.term {
			delete(e.leaving, w.bucket)
		}
		b := e.buckets[w.bucket]
		if b == nil || b.term != w.term {
			continue
		}
		b.writing = false
		if r.lost[w.bucket] {
			e.lose(b, "its row has another owner or term")
			continue
		}
		e.apply(b, w, &r)
	}
}

func (e *engine) apply(b *bucketState, w *bucketWrite, r *writeResult) {
	switch {
	case w.advance != nil:
		b.cursor = w.advance.last.position
		b.skips = b.skips.without(w.advance.carried)
		e.m.cursorRows.Add(float64(w.advance.rows))
	case w.park != nil:
		e.applyPark(b, w.park, r.parked[w.bucket])
	case w.held != nil:
		e.applyHeld(b, w.held, r.freed[w.bucket])
	case w.plan:
		e.applyPlan(b, r.plans[w.bucket])
	}
}

func (e *engine) applyPark(b *bucketState, p *parking, parked []parkedRow) {
	b.cursor, b.acked = p.last.position, p.last.position
	b.pending = advance{}
	b.attempts, b.firstTry = 0, time.Time{}
	for _, r := range parked {
		if p.skip {
			b.skips = b.skips.with(r.key, skip{from: r.sequence, to: r.sequence, reason: SkippedDead})
		}
		if p.parks || p.state == "held" {
			b.held = withKey(b.held, r.key.aggregate)
		}
	}
	b.phase = phaseActive
	e.memory -= b.forget()
}

// withKey copies: a sweep that is out reads the old map.
func withKey(m map[string]bool, key string) map[string]bool {
	next := make(map[string]bool, len(m)+1)
	for k := range m {
		next[k] = true
	}
	next[key] = true
	return next
}

// retryWrites puts everything back. Writing a cursor twice is harmless: it says the same.
func (e *engine) retryWrites(r writeResult) {
	e.log.Warn("cursors not written", "buckets", len(r.writes), "error", r.err)
	e.writeAt = e.cfg.now().Add(retryPause)
	for i := range r.writes {
		w := r.writes[i]
		b := e.buckets[w.bucket]
		switch {
		case w.advance != nil && b != nil && b.term == w.term:
			b.writing = false
			b.pending = merge(*w.advance, b.pending)
		case w.advance == nil && (w.release || w.halt != "" || (b != nil && b.term == w.term)):
			e.writes = append(e.writes, w)
		}
	}
}

// merge adds a later advance to an earlier one that was not written.
func merge(earlier, later advance) advance {
	if later.last.position < earlier.last.position {
		later.last = earlier.last
	}
	later.rows += earlier.rows
	later.carried = append(earlier.carried, later.carried...)
	return later
}

// waitForWork are the instants that matter only on a trusted lease.
func (e *engine) waitForWork(until func(time.Time)) {
	if e.sweeping < e.numSweeps && len(e.buckets) > 0 {
		until(maxTime(e.nextPoll, e.sweepAt))
	}
	for _, f := range e.flows {
		if f.outstanding == nil && f.hasWork() {
			until(f.breaker.RetryAt())
			until(e.relay.RetryAt())
		}
	}
}

// wait is how long the loop may sleep when no event comes.
func (e *engine) wait(now time.Time) time.Duration {
	d := time.Second
	until := func(t time.Time) {
		if !t.IsZero() {
			d = min(d, max(t.Sub(now), time.Millisecond))
		}
	}
	if e.isTrusted(now) {
		e.waitForWork(until)
	}
	if len(e.unchecked) > 0 && !e.checking {
		until(e.checkAt)
	}
	if !e.writing && !e.writeAt.Before(now) {
		until(e.writeAt)
	}
	if e.draining {
		until(e.drainBy)
	}
	if w := e.limiter.Wait(now); w > 0 {
		until(now.Add(w))
	}
	for _, b := range e.buckets {
		if b.releasing {
			until(b.releaseBy)
		}
		if b.retryAt.After(now) {
			until(b.retryAt)
		}
		if b.unwritten() && !e.writing {
			until(e.persistAt)
		}
	}
	return d
}

func maxTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
