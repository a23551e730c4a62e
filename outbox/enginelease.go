package outbox

import (
	"slices"
	"time"
)

// reconcile takes a renewal's news: buckets that are no longer ours are dropped at once and loudly, new ones are checked
// against the topic before anything of them is sent, and what is above the fair share is handed over.
func (e *engine) reconcile(s standing) {
	for id, b := range e.buckets {
		// A bucket that was claimed after this snapshot is not in it yet; its claim came with an earlier standing.
		if term, ok := s.owned[id]; ok && term == b.term {
			continue
		}
		e.lose(b, "another owner has it")
	}
	for _, c := range s.claims {
		e.adopt(c)
	}
	e.handOver(s.release - e.giveBackStrays(s))
	e.m.owned.Set(float64(len(e.buckets)))
}

// giveBackStrays counts the buckets that the snapshot still calls ours and that are on their way out. One that the engine
// knows nothing of is given back: its claim was committed, but the answer was lost.
func (e *engine) giveBackStrays(s standing) (leaving int) {
	for id, term := range s.owned {
		b := e.buckets[id]
		switch {
		case b != nil && b.releasing, b == nil && e.leaving[id] == term:
			leaving++
		case b == nil:
			leaving++
			e.giveBack(id, term)
		}
	}
	return leaving
}

func (e *engine) giveBack(id int16, term int64) {
	e.leaving[id] = term
	e.writes = append(e.writes, bucketWrite{bucket: id, term: term, release: true})
}

func (e *engine) adopt(c claim) {
	b := &bucketState{id: c.bucket, term: c.term, cursor: c.cursor, acked: c.cursor, readTo: c.cursor, more: true}
	e.buckets[c.bucket], e.sorted = b, nil
	p := Partition(c.bucket, e.cfg.TopicPartitions)
	f := e.flows[p]
	if f == nil {
		f = &flow{partition: p}
		e.flows[p] = f
	}
	f.buckets = append(f.buckets, b)
	e.unchecked = append(e.unchecked, c)
	e.log.Debug("bucket claimed", "bucket", c.bucket, "term", c.term, "cursor", c.cursor)
}

// lose drops a bucket without writing anything. A group that is still outstanding comes back to nobody.
func (e *engine) lose(b *bucketState, why string) {
	e.m.leasesLost.Inc()
	e.log.Error("bucket lost", "bucket", b.id, "term", b.term, "reason", why)
	e.remove(b)
}

func (e *engine) remove(b *bucketState) {
	e.memory -= b.forget()
	delete(e.buckets, b.id)
	e.sorted = nil
	f := e.flows[Partition(b.id, e.cfg.TopicPartitions)]
	f.buckets = slices.DeleteFunc(f.buckets, func(o *bucketState) bool { return o == b })
	e.unchecked = slices.DeleteFunc(e.unchecked, func(c claim) bool { return c.bucket == b.id })
	e.writes = slices.DeleteFunc(e.writes, func(w bucketWrite) bool { return w.bucket == b.id && w.term == b.term })
}

// handOver starts the release of n buckets, the highest first: every instance gives from the same end.
func (e *engine) handOver(n int) {
	list := e.bucketsSorted()
	for i := len(list) - 1; i >= 0 && n > 0; i-- {
		if !list[i].releasing {
			e.startRelease(list[i], e.cfg.now())
			n--
		}
	}
}

// startRelease stops reading the bucket. What is outstanding may still be acknowledged until releaseBy.
func (e *engine) startRelease(b *bucketState, now time.Time) {
	b.releasing, b.releaseBy = true, now.Add(e.cfg.HandOver)
	e.memory -= b.forget()
}

// retire gives back buckets that are quiet, or whose time is up: their outstanding records are abandoned, never flushed,
// since a partition without leader would keep them for ever; the next owner's tail check finds those that arrived.
func (e *engine) retire(now time.Time) {
	for _, b := range e.bucketsSorted() {
		late := now.After(b.releaseBy)
		if !b.releasing || b.writing || (!b.quiet() && !late) || (b.phase == phaseDeciding && !late) {
			continue
		}
		e.log.Debug("bucket released", "bucket", b.id, "term", b.term, "cursor", b.cursor, "abandoned", b.inFlight)
		term := b.term
		e.remove(b)
		e.giveBack(b.id, term)
	}
}

func (e *engine) drain(now time.Time) {
	e.draining, e.drainBy = true, now.Add(e.cfg.HandOver+2*time.Second)
	for _, b := range e.buckets {
		e.startRelease(b, now)
	}
}

// drained reports whether the loop may end: everything is released, or the time for it is up.
func (e *engine) drained() bool {
	if !e.draining {
		return false
	}
	done := len(e.buckets) == 0 && len(e.writes) == 0 && !e.writing
	return done || e.cfg.now().After(e.drainBy)
}

// checkTails asks for the tails of new buckets, all in one request.
func (e *engine) checkTails(now time.Time) {
	if e.checking || len(e.unchecked) == 0 || now.Before(e.checkAt) {
		return
	}
	e.checking = true
	e.tails <- tailRequest{claims: e.unchecked} // buffered for one request: never blocks
	e.unchecked = nil
}

// verify asks what of a failed group reached the topic before anything is sent again.
func (e *engine) verify(b *bucketState, sentAt time.Time) {
	b.phase = phaseChecking
	e.unchecked = append(e.unchecked, claim{bucket: b.id, term: b.term, cursor: b.acked, since: sentAt.Add(-tailSlack)})
}

func (e *engine) resume(t tailResult) {
	e.checking = false
	if t.err != nil {
		e.retryTails(t)
		return
	}
	e.failures = 0
	e.paused.Store(false)
	for _, a := range t.answers {
		b := e.buckets[a.bucket]
		if b == nil || b.term != a.term || b.phase != phaseChecking {
			continue
		}
		if a.unread != nil {
			e.askAgain(b, t.request, a.unread)
			continue
		}
		e.activate(b, a)
	}
}

// askAgain keeps the bucket: nobody else can read its partition either.
func (e *engine) askAgain(b *bucketState, request tailRequest, cause error) {
	e.log.Warn("partition not read", "bucket", b.id, "error", cause)
	e.checkAt = e.cfg.now().Add(retryPause)
	for _, c := range request.claims {
		if c.bucket == b.id {
			e.unchecked = append(e.unchecked, c)
		}
	}
}

// retryTails keeps the buckets and tries again; while Kafka cannot be read no further bucket is claimed, and after a
// while ours are given back, because another relay may reach it.
func (e *engine) retryTails(t tailResult) {
	e.failures++
	e.log.Warn("tail not read", "buckets", len(t.request.claims), "error", t.err)
	now := e.cfg.now()
	e.checkAt = now.Add(retryPause)
	e.paused.Store(true)
	for _, c := range t.request.claims {
		b := e.buckets[c.bucket]
		if b == nil || b.term != c.term {
			continue
		}
		if e.failures > maxTailFailures && !b.releasing {
			e.startRelease(b, now)
			continue
		}
		e.unchecked = append(e.unchecked, c)
	}
}

// maxTailFailures in a row make the relay give its unchecked buckets back.
const maxTailFailures = 25

// activate starts a bucket where the topic ends.
func (e *engine) activate(b *bucketState, a tailAnswer) {
	b.skips, b.held = a.skips, a.held
	if a.halt != "" {
		e.m.halted.Inc()
		e.log.Error("bucket halted", "bucket", b.id, "reason", a.halt)
		term := b.term
		e.remove(b)
		e.leaving[b.id] = term
		e.writes = append(e.writes, bucketWrite{bucket: b.id, term: term, halt: a.halt})
		return
	}
	if a.behind {
		e.m.tailBehind.Inc()
		e.log.Warn("topic ends before the cursor", "bucket", b.id, "cursor", b.cursor)
	}
	b.phase = phaseActive
	if a.last.position <= b.acked {
		return
	}
	if len(a.overtaken) > 0 {
		e.overtaken(b, a)
		return
	}
	b.pending.rows += a.published
	b.pending.last = a.last
	b.acked, b.readTo = a.last.position, a.last.position
	e.m.resumed.Add(float64(a.published))
}

// overtaken rows were passed by later rows of their bucket: sending them now would only be dropped by every gate, a
// silent loss. They become dead, visibly.
func (e *engine) overtaken(b *bucketState, a tailAnswer) {
	e.m.dead.WithLabelValues("OVERTAKEN").Add(float64(len(a.overtaken)))
	e.log.Error("rows were overtaken", "bucket", b.id, "rows", len(a.overtaken), "first", a.overtaken[0])
	e.decide(b, &parking{
		positions: a.overtaken, last: a.last, published: a.published, state: "dead", code: "OVERTAKEN",
		why: "later rows of the bucket reached the topic first", skip: true,
	})
}
