package outbox

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hubstate/hubstate/internal/mutant"
)

// engine is the loop of a relay. One goroutine owns all its state; everything slow happens in others and comes back as
// an event. The loop reads as the design says it:
//
//	lease still trusted? → sweep rows after the cursors → submit groups → acked prefix → advance{ WHERE term = mine } → again
type engine struct {
	cfg      *Config
	instance string
	log      *slog.Logger
	m        *metrics
	trusted  *atomic.Pointer[time.Time]
	paused   *atomic.Bool // no claims while Kafka cannot be read
	hears    *atomic.Bool // the bell: poll rarely while nothing comes
	publish  *publisher
	groupMax func() int // bytes of a produce batch
	limiter  *Limiter

	buckets map[int16]*bucketState
	sorted  []*bucketState // of buckets; nil = to be made
	flows   map[int32]*flow
	relay   Breaker // opened by errors that no partition can escape
	memory  int64
	average int64 // bytes of a row in memory, smoothed

	sweeping int
	nextPoll time.Time
	sweepAt  time.Time // no sweep before: the last one failed
	idle     time.Duration
	pacedAt  time.Time
	rows     float64 // of a sweep, smoothed
	span     float64 // seconds between sweeps, smoothed

	unchecked []claim
	checking  bool
	checkAt   time.Time
	failures  int // tail checks that failed in a row

	writes    []bucketWrite   // rarer writes that wait for the writer
	leaving   map[int16]int64 // buckets whose release or halt is not written yet, with the term
	writing   bool
	writeAt   time.Time // no write before: the last one failed
	persistAt time.Time // of plain cursors

	observedAt time.Time

	draining bool
	drainBy  time.Time

	standing  <-chan standing
	sweeps    chan<- *sweepRequest
	swept     <-chan sweepResult
	sent      <-chan *group
	jobs      chan<- []bucketWrite
	written   <-chan writeResult
	decided   <-chan []decidedHead
	heard     <-chan struct{}
	tails     chan<- tailRequest
	tailed    <-chan tailResult
	numSweeps int
}

// run works until ctx ends, then drains: it stops taking work, waits for its own acknowledgements up to HandOver, writes
// the last cursors, releases every bucket, and returns nil.
func (e *engine) run(ctx context.Context) error {
	stop := ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !e.drained() {
		now := e.cfg.now()
		e.observe(now)
		e.submit(now)
		e.readAhead(now)
		e.checkTails(now)
		e.startPlans()
		e.retire(now)
		e.persist(now)
		timer.Reset(e.wait(now))
		select {
		case <-stop:
			stop = nil
			e.drain(e.cfg.now())
		case s := <-e.standing:
			e.reconcile(s)
		case r := <-e.swept:
			e.accept(r)
		case g := <-e.sent:
			e.settle(g)
			e.settleReady()
		case d := <-e.decided:
			e.release(d)
		case <-e.heard:
			e.wake(e.cfg.now())
		case w := <-e.written:
			e.confirm(w)
		case t := <-e.tailed:
			e.resume(t)
		case <-timer.C:
		}
	}
	return nil
}

// isTrusted reports whether the lease may still be relied on. Both instants carry monotonic readings, so a step of the
// wall clock neither extends nor ends it, and a process that was stopped finds it over when it wakes.
func (e *engine) isTrusted(now time.Time) bool {
	until := e.trusted.Load()
	return until != nil && now.Before(*until)
}

// submit gives each idle partition its next group. Nothing is submitted on a lease that may have run out.
func (e *engine) submit(now time.Time) {
	if !e.isTrusted(now) {
		return
	}
	var groups []*group
	for _, f := range e.flows {
		if f.outstanding != nil || !e.allowed(f, now) {
			continue
		}
		g := f.compose(e.cfg.WindowRows, e.groupMax())
		if g == nil {
			f.breaker.Abandon(now)
			continue
		}
		e.note(f, g, now)
		groups = append(groups, g)
	}
	e.publish.submit(groups)
	e.passSkipped()
}

func (e *engine) allowed(f *flow, now time.Time) bool {
	if e.limiter.Wait(now) > 0 || !f.hasWork() {
		return false
	}
	if !f.breaker.Allow(now) {
		return false
	}
	if !e.relay.Allow(now) {
		f.breaker.Abandon(now)
		return false
	}
	return true
}

func (f *flow) hasWork() bool {
	return slices.ContainsFunc(f.buckets, func(b *bucketState) bool {
		if b.released != nil && b.phase == phaseActive && !b.inFlight {
			return true
		}
		return b.phase == phaseActive && !b.releasing && !b.inFlight && len(b.windows) > 0 && b.windows[0].kind == windowPublish
	})
}

// note remembers what is about to be outstanding in the partition.
func (e *engine) note(f *flow, g *group, now time.Time) {
	f.outstanding, f.since = g, now
	if mutant.On(MutantCursorBeforeAck) {
		e.creditEarly(g)
	}
	e.limiter.Spend(now, g.records, g.bytes)
}

// creditEarly is the mutant: the cursor moves when a group is submitted.
func (e *engine) creditEarly(g *group) {
	for _, s := range g.segments {
		s.b.pending.rows++
		s.b.pending.last = s.w.rows[s.to-1]
	}
}

// settle takes the outcome of a group: the acknowledged prefix counts, what stands behind a failure is read again.
func (e *engine) settle(g *group) {
	f := g.flow
	f.outstanding = nil
	now := e.cfg.now()
	e.m.produce.Observe(now.Sub(f.since).Seconds())
	for i := range g.segments {
		e.credit(&g.segments[i], now)
	}
	if g.err == nil {
		f.breaker.Success(now)
		e.relay.Success(now)
		f.relax(g)
		return
	}
	e.fail(f, g, now)
}

// settleReady takes the groups that came back together: one response of the broker answers for many partitions.
func (e *engine) settleReady() {
	for {
		select {
		case g := <-e.sent:
			e.settle(g)
		default:
			return
		}
	}
}

// credit moves acked to the end of the acknowledged prefix. A segment of a bucket that was lost meanwhile is only freed.
func (e *engine) credit(s *segment, now time.Time) {
	b := e.buckets[s.b.id]
	if b != s.b {
		e.free(s.w)
		return
	}
	b.inFlight = false
	if s.w.kind == windowRelease {
		e.creditReleased(b, s)
		return
	}
	if s.acked > 0 {
		last := s.w.rows[s.from+s.acked-1]
		b.acked = last.position
		b.readTo = max(b.readTo, b.acked)
		b.attempts, b.firstTry, b.retryAt = 0, time.Time{}, time.Time{}
		b.pending.rows += int64(s.acked)
		b.pending.last = last
		e.carry(b, s)
		e.m.observePublished(s, now)
	}
	b.sent = s.from + s.acked
	if b.sent == len(s.w.rows) {
		e.dropWindow(b)
	}
}

// carry notes the skipped ranges that acknowledged events took along; the cursor write clears them.
func (e *engine) carry(b *bucketState, s *segment) {
	for _, c := range s.w.carries {
		if c.row >= s.from && c.row < s.from+s.acked {
			b.pending.carried = append(b.pending.carried, c)
		}
	}
}

func (e *engine) dropWindow(b *bucketState) {
	e.free(b.windows[0])
	b.windows = append(b.windows[:0], b.windows[1:]...)
	b.sent = 0
}

func (e *engine) free(w *window) {
	e.memory -= int64(w.bytes)
	w.recycle()
}

// fail decides what a failed group means. Only the error of a record that was alone in its batch is that row's: franz-go
// fails everything buffered for the partition with the same error.
func (e *engine) fail(f *flow, g *group, now time.Time) {
	v := Classify(g.err)
	e.m.retries.WithLabelValues(v.Kind.String(), v.Code).Inc()
	e.log.Warn("group not acknowledged", "partition", f.partition, "records", g.records, "kind", v.Kind.String(), "code", v.Code, "error", g.err)
	f.breaker.Failure(now, v)
	if v.Everywhere {
		e.relay.Failure(now, v)
	}
	if v.CostsRow() && g.records > 1 {
		f.blame(g)
	}
	for i := range g.segments {
		s := &g.segments[i]
		b := e.buckets[s.b.id]
		switch {
		case b != s.b || s.acked == s.to-s.from:
		case s.w.kind == windowRelease:
			e.failReleased(b, s, v, g)
		default:
			e.failBucket(b, f, g, v, now)
		}
	}
}

func (e *engine) failBucket(b *bucketState, f *flow, g *group, v Verdict, now time.Time) {
	first := b.windows[0].rows[b.sent]
	e.memory -= b.forget()
	if v.CostsRow() && g.records == 1 {
		e.failRow(b, first, v, g.err, now)
		return
	}
	note := &failureNote{rowAttempts: b.attempts, outageAttempts: f.breaker.Failures(), code: v.Code, why: g.err.Error(), wait: max(0, f.breaker.RetryAt().Sub(now))}
	e.writes = append(e.writes, bucketWrite{bucket: b.id, term: b.term, failure: note})
	if g.records > 1 {
		e.verify(b, f.since) // some of it may be on the topic: ask before sending it again
	}
}

// failRow counts an attempt of a row that was alone. The first unacknowledged row keeps its place until it is decided.
func (e *engine) failRow(b *bucketState, r row, v Verdict, cause error, now time.Time) {
	if b.attempts == 0 {
		b.firstTry = now
	}
	b.attempts++
	if v.Exhausted(b.attempts, now.Sub(b.firstTry)) {
		e.park(b, r, v.Code, cause.Error())
		return
	}
	wait := v.Backoff.Delay(b.attempts, rand.Float64())
	b.retryAt = now.Add(wait)
	note := &failureNote{rowAttempts: b.attempts, code: v.Code, why: cause.Error(), wait: wait}
	e.writes = append(e.writes, bucketWrite{bucket: b.id, term: b.term, failure: note})
}

// park moves one row to outbox_dead, with the cursor. Nothing of the bucket is read or sent until that is written: the
// next event of the stream has to carry the skip.
func (e *engine) park(b *bucketState, r row, code, why string) {
	e.m.dead.WithLabelValues(code).Inc()
	e.log.Error("row is dead", "bucket", b.id, "position", r.position, "code", code, "attempts", b.attempts, "error", why)
	b.phase = phaseDeciding
	hold := e.cfg.OnDead == DeadHold
	p := &parking{positions: []int64{r.position}, last: r, state: "dead", attempts: b.attempts, code: code, why: why, skip: !hold, parks: hold}
	e.writes = append(e.writes, bucketWrite{bucket: b.id, term: b.term, park: p})
}

// stallAfter is when an outstanding group counts as stalled: its partition has no leader, or the broker does not answer.
const stallAfter = 5 * time.Second

// observe sets the gauges that no event moves, twice a second.
func (e *engine) observe(now time.Time) {
	if now.Sub(e.observedAt) < 500*time.Millisecond {
		return
	}
	e.observedAt = now
	stalled, open := 0, 0
	for _, f := range e.flows {
		if f.outstanding != nil && now.Sub(f.since) > stallAfter {
			stalled++
		}
		if f.breaker.State() != BreakerClosed {
			open++
		}
	}
	if e.relay.State() != BreakerClosed {
		open++
	}
	e.m.stalled.Set(float64(stalled))
	e.m.breakerState.Set(float64(open))
	e.m.memory.Set(float64(e.memory))
}

// bucketsSorted is made again after a bucket came or went; not to be changed by the caller.
func (e *engine) bucketsSorted() []*bucketState {
	if e.sorted != nil {
		return e.sorted
	}
	list := make([]*bucketState, 0, len(e.buckets))
	for _, b := range e.buckets {
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b *bucketState) int { return int(a.id) - int(b.id) })
	e.sorted = list
	return list
}
