package outbox

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// flow is one Kafka partition. At most one group is outstanding in it: the discipline that keeps first deliveries in
// order (O2). Callbacks are asynchronous, so checking a "failed" flag before each submit is not enough: later records
// were acknowledged after an earlier one had failed.
type flow struct {
	partition   int32
	buckets     []*bucketState
	next        int // where the round over the buckets goes on
	outstanding *group
	since       time.Time // when the outstanding group was submitted
	breaker     Breaker
	limit       int   // records of a group while a bad one is searched; 0 = no limit
	suspect     int64 // the search ends behind this position
}

// segment is a run of rows of one window inside a group.
type segment struct {
	b        *bucketState
	term     int64
	w        *window
	from, to int
	acked    int // rows from `from` on that the broker acknowledged, contiguous
}

// group is what is outstanding in one partition: at most one produce batch.
type group struct {
	flow     *flow
	segments []segment
	records  int
	bytes    int
	end      int64 // position of the last record: the windows are recycled before the group is judged
	err      error // of the first record that failed

	open   int // records without a fate; with failed, the client's until the group comes back
	failed map[*kgo.Record]error
}

// compose takes the next group from the windows of the flow's buckets, round robin, within the limits. Windows that are
// not to be published are left for the engine.
func (f *flow) compose(maxRecords, maxBytes int) *group {
	if f.limit > 0 {
		maxRecords = min(maxRecords, f.limit)
	}
	g := &group{flow: f}
	for range f.buckets {
		if g.records >= maxRecords || g.bytes >= maxBytes {
			break
		}
		b := f.buckets[f.next%len(f.buckets)]
		f.next++
		g.take(b, maxRecords, maxBytes)
	}
	if g.records == 0 {
		return nil
	}
	return g
}

func (g *group) take(b *bucketState, maxRecords, maxBytes int) {
	if b.phase != phaseActive || b.releasing || b.inFlight {
		return
	}
	w, from := b.released, 0
	if w == nil {
		if len(b.windows) == 0 || b.windows[0].kind != windowPublish {
			return
		}
		w, from = b.windows[0], b.sent
	}
	s := segment{b: b, term: b.term, w: w, from: from, to: from}
	for s.to < len(w.rows) && g.records < maxRecords {
		size := int(w.rows[s.to].size)
		if g.records > 0 && g.bytes+size > maxBytes {
			break
		}
		g.bytes += size
		g.records++
		s.to++
	}
	if s.to > s.from {
		b.inFlight = true
		g.end = w.rows[s.to-1].position
		g.segments = append(g.segments, s)
	}
}

// blame narrows the search after a group failed with what may be one row's fault: half as many next time, down to one.
func (f *flow) blame(g *group) {
	f.limit = max(1, g.records/2)
	f.suspect = max(f.suspect, g.end)
}

// relax widens the search once it is past the suspected stretch.
func (f *flow) relax(g *group) {
	if f.limit == 0 {
		return
	}
	if g.end >= f.suspect {
		f.limit, f.suspect = 0, 0
	}
}
