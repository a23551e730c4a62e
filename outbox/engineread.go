package outbox

import (
	"time"
)

// readAhead sends a sweep for every bucket with room: those with more rows behind what was read at once, all others when
// the poll is due. While a sweep is out, buckets that become ready gather for the next one, so sweeps grow with the load.
func (e *engine) readAhead(now time.Time) {
	for !now.Before(e.sweepAt) && e.sweeping < e.numSweeps && e.memory < e.cfg.MemoryBytes && e.isTrusted(now) {
		req := e.nextSweep(now)
		if req == nil {
			return
		}
		e.sweeping++
		e.sweeps <- req // buffered for numSweeps requests: never blocks
	}
}

func (e *engine) nextSweep(now time.Time) *sweepRequest {
	due := !now.Before(e.nextPoll)
	if req := e.nextPlanned(now); req != nil {
		return req
	}
	req := &sweepRequest{}
	for _, b := range e.bucketsSorted() {
		if b.readable(now) && (b.more || due) {
			req.add(b)
		}
	}
	if due {
		e.nextPoll = now.Add(e.idle)
	}
	if len(req.buckets) == 0 {
		return nil
	}
	req.budget = e.cfg.MemoryBytes - e.memory
	perBucket := req.budget / int64(len(req.buckets)) / max(e.average, 1)
	req.limit = int(min(max(perBucket, 16), int64(e.cfg.WindowRows)))
	return req
}

func (req *sweepRequest) add(b *bucketState) {
	b.reading = true
	req.buckets = append(req.buckets, b.id)
	req.after = append(req.after, b.readTo)
	req.reading = append(req.reading, reading{generation: b.generation, skips: b.skips, held: b.held})
}

// nextPlanned asks for the next rows of the buckets that follow a plan.
func (e *engine) nextPlanned(now time.Time) *sweepRequest {
	req := &sweepRequest{planned: true, limit: e.cfg.WindowRows, budget: e.cfg.MemoryBytes - e.memory}
	for _, b := range e.bucketsSorted() {
		if b.plan == nil || !b.readable(now) {
			continue
		}
		positions := b.planned(e.cfg.WindowRows)
		if positions == nil {
			b.more = true
			continue
		}
		req.add(b)
		for _, p := range positions {
			req.positions, req.owners = append(req.positions, p), append(req.owners, b.id)
		}
	}
	if len(req.buckets) == 0 {
		return nil
	}
	return req
}

// accept takes the windows of a sweep. Those of a bucket that was reset or lost meanwhile are thrown away.
func (e *engine) accept(r sweepResult) {
	e.sweeping--
	now := e.cfg.now()
	if r.request.release != "" {
		e.acceptReleased(r)
		return
	}
	for i, id := range r.request.buckets {
		if b := e.buckets[id]; b != nil && b.generation == r.request.reading[i].generation {
			b.reading, b.more = false, b.more && r.err != nil
		} else if b != nil {
			b.reading = false
		}
	}
	if r.err != nil {
		e.log.Warn("sweep failed", "error", r.err)
		e.sweepAt = now.Add(retryPause)
		return
	}
	rows := 0
	for _, w := range r.windows {
		rows += len(w.rows)
		e.enqueue(w)
	}
	e.pace(rows, now)
}

// retryPause is how long a loop waits after its session failed.
const retryPause = 200 * time.Millisecond

func (e *engine) enqueue(w *window) {
	b := e.buckets[w.bucket]
	if b == nil || b.generation != w.generation || b.phase != phaseActive || b.releasing {
		if b != nil {
			b.more = true
		}
		w.recycle()
		return
	}
	if e.planFirst(b, w) {
		w.recycle()
		return
	}
	e.memory += int64(w.bytes)
	e.average += (int64(w.bytes/len(w.rows)) - e.average) / 8
	b.windows = append(b.windows, w)
	b.readTo, b.more = w.last().position, w.full
}

// planFirst starts a plan when the policy is latest and the bucket's backlog is long and old: its oldest row is older than
// BacklogAge and more rows stand behind the window.
func (e *engine) planFirst(b *bucketState, w *window) bool {
	old := e.cfg.now().UnixMicro()-w.rows[0].created > e.cfg.BacklogAge.Microseconds()
	if e.cfg.Backlog != BacklogLatest || b.plan != nil || !w.full || !old {
		return false
	}
	b.planning, b.more = true, true
	return true
}

// startPlans asks for the plans of buckets whose rows from before are all decided.
func (e *engine) startPlans() {
	for _, b := range e.buckets {
		if !b.planning || b.inFlight || len(b.windows) > 0 || b.phase != phaseActive || b.releasing || b.acked != b.cursor {
			continue
		}
		b.planning, b.phase = false, phaseDeciding
		e.memory -= b.forget()
		e.writes = append(e.writes, bucketWrite{bucket: b.id, term: b.term, plan: true})
	}
}

// gatherMax bounds the pause under load.
const gatherMax = 25 * time.Millisecond

// pace backs the poll off from PollMin to PollMax, or PollIdle while the bell is heard, while nothing comes. Under load it waits for more rows, up to gatherMax:
// what a record costs here, at the broker and at every consumer depends on how many of its partition travel together (one
// or two of them when 7,500 events a second are fetched every 5 ms, and twice the processor time of eight).
func (e *engine) pace(rows int, now time.Time) {
	gather := e.gather(rows, now)
	if rows == 0 {
		e.idle = min(2*e.idle, e.pollMax())
		return
	}
	e.idle = gather
	if next := now.Add(e.idle); next.Before(e.nextPoll) {
		e.nextPoll = next
	}
}

func (e *engine) pollMax() time.Duration {
	if e.hears.Load() {
		return e.cfg.PollIdle
	}
	return e.cfg.PollMax
}

// wake polls at once: somebody committed after a silence.
func (e *engine) wake(now time.Time) {
	e.idle = e.cfg.PollMin
	if now.Before(e.nextPoll) {
		e.nextPoll = now
	}
}

// gather is 3 ms for each thousand rows a second that come; a light load keeps PollMin. Rows and time are smoothed apart:
// two sweeps that return together are not a rate.
func (e *engine) gather(rows int, now time.Time) time.Duration {
	const weight = 1.0 / 16
	e.rows += (float64(rows) - e.rows) * weight
	e.span += (now.Sub(e.pacedAt).Seconds() - e.span) * weight
	e.pacedAt = now
	rate := e.rows / max(e.span, 1e-6)
	return max(e.cfg.PollMin, min(time.Duration(rate*float64(3*time.Microsecond)), gatherMax))
}

// passSkipped handles windows that are not published: recorded as skipped, parked behind a dead head, or too large.
func (e *engine) passSkipped() {
	for _, b := range e.buckets {
		// While parked rows are released nothing more is parked: it would be left behind when the aggregate flows again.
		for b.phase == phaseActive && !b.inFlight && b.deciding == "" && len(b.windows) > 0 && b.windows[0].kind != windowPublish {
			e.passWindow(b)
		}
	}
}

func (e *engine) passWindow(b *bucketState) {
	w := b.windows[0]
	switch w.kind {
	case windowSkipped:
		b.acked = w.last().position
		b.pending.last = w.last()
		e.dropWindow(b)
	case windowPark:
		p := &parking{last: w.last(), state: "held", code: "HELD", why: "behind a dead row of the same key"}
		for _, r := range w.rows {
			p.positions = append(p.positions, r.position)
		}
		e.m.held.Add(float64(len(w.rows)))
		e.decide(b, p)
	case windowOversize:
		r := w.rows[0]
		e.memory -= b.forget()
		e.park(b, r, "MESSAGE_TOO_LARGE", "the record is larger than the topic's max.message.bytes; it was not sent")
	}
}

// decide hands a parking to the writer and forgets what was read: it is read again with the new skips and holds.
func (e *engine) decide(b *bucketState, p *parking) {
	e.memory -= b.forget()
	b.phase = phaseDeciding
	e.writes = append(e.writes, bucketWrite{bucket: b.id, term: b.term, park: p})
}
