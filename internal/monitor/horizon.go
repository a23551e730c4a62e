package monitor

import "time"

// Horizon knows up to which instant this view has seen everything that Kafka held. It is the difference between "the
// device is silent" and "we are not looking".
//
// At an instant t somebody asks Kafka for the ends of all partitions; once the view has applied every partition up to
// those ends, everything published before t is in the view. If Kafka does not answer, t does not move and the age of
// the screen grows by itself: nothing has to notice.
//
// It keeps two questions a partition: the one it is waiting for and the newest. A view that lags by a constant amount
// therefore trails by up to twice that amount; it never claims to have seen more than it has. Not safe for concurrent use.
type Horizon struct {
	partitions map[int32]*sight
}

// sight is one partition: until is proven, pending is awaited, latest takes its place.
type sight struct {
	until           time.Time
	pending, latest question
	applied         int64
}

type question struct {
	at  time.Time
	end int64
}

// Ends are the first and the next offset of one partition, as Kafka reports them. Unreachable: the partition exists,
// but nobody answers for it; its horizon stands still.
type Ends struct {
	Start, End  int64
	Unreachable bool
}

// Ask records the ends that Kafka gave to a request sent at `at`. Partitions that disappeared are forgotten.
func (h *Horizon) Ask(at time.Time, ends map[int32]Ends) {
	if h.partitions == nil {
		h.partitions = map[int32]*sight{}
	}
	for p := range h.partitions {
		if _, ok := ends[p]; !ok {
			delete(h.partitions, p)
		}
	}
	for p, e := range ends {
		s := h.partitions[p]
		if s == nil {
			s = &sight{}
			h.partitions[p] = s
		}
		if !e.Unreachable {
			s.ask(question{at, e.End}, e.Start)
		}
	}
}

func (s *sight) ask(q question, start int64) {
	if q.end <= start { // empty, or emptied by retention: there is nothing to wait for
		q.end = 0
	}
	s.latest = q
	if s.pending.at.IsZero() {
		s.pending = q
	}
	s.settle()
}

// Applied records the next offset that the view will apply, for each partition. Offsets may go back (a flushed view
// reads again from the start); what was proven before then counts no longer.
func (h *Horizon) Applied(next map[int32]int64) {
	for p, s := range h.partitions {
		offset := next[p]
		if offset < s.applied {
			s.until = time.Time{}
		}
		s.applied = offset
		s.settle()
	}
}

func (s *sight) settle() {
	if s.pending.at.IsZero() || s.applied < s.pending.end {
		return
	}
	s.until = s.pending.at
	if s.applied >= s.latest.end {
		s.until = s.latest.at
	}
	s.pending = s.latest
}

// SeenUntil is the instant up to which every partition has been seen; zero when that was never proven.
func (h *Horizon) SeenUntil() time.Time {
	var until time.Time
	for _, s := range h.partitions {
		if s.until.IsZero() {
			return time.Time{}
		}
		if until.IsZero() || s.until.Before(until) {
			until = s.until
		}
	}
	return until
}

// Lag is the number of records between what the view has applied and the newest ends it knows of.
func (h *Horizon) Lag() int64 {
	var lag int64
	for _, s := range h.partitions {
		lag += max(0, s.latest.end-s.applied)
	}
	return lag
}

// AsOf is the instant up to which the whole pipeline vouches for this screen: what the view has seen of Kafka, and not
// later than the oldest row that still waits for it in an outbox (zero: none waits, or nobody looked).
func AsOf(seenUntil, oldestUnpublished, now time.Time) time.Time {
	asOf := seenUntil
	if asOf.After(now) {
		asOf = now
	}
	if !oldestUnpublished.IsZero() && oldestUnpublished.Before(asOf) {
		asOf = oldestUnpublished
	}
	return asOf
}
