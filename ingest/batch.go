package ingest

import (
	"math/rand/v2"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/outbox"
)

// batch is a list of messages on its way through one transaction: grouped by stream, decided, and turned into the
// columns of its statements. Its buffers are reused from batch to batch. Not safe for concurrent use.
type batch struct {
	items []item

	index     map[streamKey]int32
	streams   []stream
	reports   []devicestate.Report   // grouped by stream, in order of arrival
	decisions []devicestate.Decision // of reports, one each
	place     []int32                // of each item in reports; -1 when it belongs to no stream
	devices   []string               // of streams
	remembers known
	trust     trust
	asked     []int32     // streams whose rows are read
	names     streamNames // of asked
	moved     []int32     // streams whose rows get a new version, in the order of rows

	counts  [devicestate.Quarantined + 1]int64
	payload []byte // all event values of the batch
	source  map[string]string
	message outbox.Message
	fresh   stateRows // of streams never seen
	rows    stateRows
	gaps    gapRows
	fills   fillRows
	rejects rejectRows
}

type streamKey struct{ device, stream string }

// stream is one stream's part of a batch.
type stream struct {
	streamKey
	policy       *devicestate.StreamPolicy
	first, count int
	stored       devicestate.State
	xmin         uint32 // the transaction that wrote stored
	known        bool   // stored was read or remembered
}

// streamNames are the parameters that read the stored rows.
type streamNames struct{ devices, streams column[text] }

func newBatch() *batch {
	return &batch{index: map[streamKey]int32{}, source: map[string]string{}, remembers: known{}}
}

// group sorts items by stream. The reports of a stream stay in order of arrival.
func (b *batch) group(items []item) {
	b.items = items
	clear(b.index)
	clear(b.reports)
	b.streams, b.place, b.devices = b.streams[:0], b.place[:0], b.devices[:0]
	reports := 0
	for i := range items {
		at := int32(-1)
		if it := &items[i]; it.policy != nil {
			at = b.streamOf(it)
			b.streams[at].count++
			reports++
		}
		b.place = append(b.place, at)
	}
	b.spread(reports)
	b.recall()
}

// recall takes what is remembered of the streams; the others are to be read.
func (b *batch) recall() {
	b.asked, b.names.devices, b.names.streams = b.asked[:0], b.names.devices[:0], b.names.streams[:0]
	worth := b.trust.worth()
	for i := range b.streams {
		s := &b.streams[i]
		if worth && b.remembers.recall(s) {
			continue
		}
		b.asked = append(b.asked, int32(i))
		b.names.devices = append(b.names.devices, text(s.device))
		b.names.streams = append(b.names.streams, text(s.stream))
	}
}

func (b *batch) streamOf(it *item) int32 {
	key := streamKey{it.report.Device, it.report.Stream}
	at, ok := b.index[key]
	if !ok {
		at = int32(len(b.streams))
		b.index[key] = at
		b.streams = append(b.streams, stream{streamKey: key, policy: it.policy})
		b.devices = append(b.devices, key.device)
	}
	return at
}

// spread copies the reports to their places; place then holds the index of each item's report.
func (b *batch) spread(reports int) {
	first := 0
	for i := range b.streams {
		s := &b.streams[i]
		s.first, first, s.count = first, first+s.count, 0
	}
	b.reports = resize(b.reports, reports)
	for i, at := range b.place {
		if at < 0 {
			continue
		}
		s := &b.streams[at]
		b.place[i] = int32(s.first + s.count)
		b.reports[b.place[i]] = b.items[i].report
		s.count++
	}
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// decide folds every stream over its stored row. With withhold no event is emitted: the streams that would have are owed
// one (above the outbox cap).
func (b *batch) decide(now time.Time, epoch int64, withhold bool) {
	b.decisions = b.decisions[:0]
	for i := range b.streams {
		s := &b.streams[i]
		var prev *devicestate.State
		if s.known {
			prev = &s.stored
		} else {
			b.startIn(epoch, s)
		}
		policy := s.policy
		if withhold && policy.Emit != devicestate.EmitNone {
			silent := *policy
			silent.Emit = devicestate.EmitNone
			policy = &silent
		}
		start := len(b.decisions)
		b.decisions = devicestate.AppendFold(b.decisions, prev, b.reports[s.first:s.first+s.count], now, policy)
		settleOwed(b.decisions[start:], policy != s.policy)
	}
	b.count()
}

// startIn gives a stream that was never seen the epoch that the cell is in.
func (b *batch) startIn(epoch int64, s *stream) {
	for i := s.first; i < s.first+s.count; i++ {
		b.reports[i].FirstEpoch = epoch
	}
}

// settleOwed marks a stream whose events were withheld, and clears the mark with its next event, which says it all.
func settleOwed(decisions []devicestate.Decision, withheld bool) {
	owed, settled := false, false
	for i := range decisions {
		d := &decisions[i]
		owed = owed || withheld && (d.Class == devicestate.Applied || d.Class == devicestate.Coalesced)
		settled = settled || d.Emit
		if owed {
			d.State.Owed = true
		}
		if settled {
			d.State.Owed = false
		}
	}
}

func (b *batch) count() {
	clear(b.counts[:])
	for i := range b.items {
		b.counts[b.class(i)]++
	}
}

// class is what became of item i.
func (b *batch) class(i int) devicestate.Class {
	switch it := &b.items[i]; {
	case it.ignored:
		return devicestate.Ignored
	case it.policy == nil:
		return devicestate.Quarantined
	}
	return b.decisions[b.place[i]].Class
}

// build turns the decisions into the rows of all statements. Events are appended in order of arrival.
func (b *batch) build(txn *outbox.Txn, ids *messageIDs, buckets int) error {
	b.fresh.reset()
	b.rows.reset()
	b.gaps.reset()
	b.fills.reset()
	b.rejects.reset()
	b.moved = b.moved[:0]
	for i := range b.streams {
		b.buildState(int32(i), buckets)
	}
	b.payload = b.payload[:0]
	for i := range b.items {
		if err := b.buildItem(i, txn, ids); err != nil {
			return err
		}
	}
	return nil
}

// buildState adds the row of a stream. One that is known is written even when nothing of it moved: the write is also what
// finds out that a remembered row is not the stored one.
func (b *batch) buildState(i int32, buckets int) {
	s := &b.streams[i]
	state := b.newest(s)
	switch {
	case s.known:
		b.moved = append(b.moved, i)
		b.rows.addKnown(s.streamKey, s.xmin, &s.stored, state)
	case state != nil:
		b.fresh.addNew(s.streamKey, outbox.Bucket(s.device, buckets), state)
	}
}

// newest is what the batch leaves of a stream: the state of the last decision that changed it, else the stored one; nil
// when there is neither.
func (b *batch) newest(s *stream) *devicestate.State {
	for i := s.first + s.count - 1; i >= s.first; i-- {
		if d := &b.decisions[i]; d.Changed {
			return &d.State
		}
	}
	if s.known {
		return &s.stored
	}
	return nil
}

func (b *batch) buildItem(i int, txn *outbox.Txn, ids *messageIDs) error {
	it := &b.items[i]
	if it.reject != nil {
		b.rejects.add(it, it.reject)
	}
	if b.place[i] < 0 {
		return nil
	}
	r, d := &b.reports[b.place[i]], &b.decisions[b.place[i]]
	if d.Reject != nil {
		b.rejects.add(it, d.Reject)
	}
	for _, g := range d.Gaps {
		b.gaps.add(r, d, g)
	}
	if d.Filled.OK {
		b.fills.add(r, d.Filled.V)
	}
	if !d.Emit {
		return nil
	}
	return b.append(txn, ids.next(r.ReceivedAt), r, d)
}

// append encodes the event behind the others. A payload keeps its own array when the buffer has to grow.
func (b *batch) append(txn *outbox.Txn, id [16]byte, r *devicestate.Report, d *devicestate.Decision) error {
	e := devicestate.EventOf(id, r, d)
	start := len(b.payload)
	b.payload = devicestate.AppendEvent(b.payload, &e)
	b.message = outbox.Message{
		ID: id, AggregateType: devicestate.AggregateType, AggregateID: r.Device, EventType: devicestate.EventType,
		SchemaVersion: devicestate.SchemaVersion, Stream: r.Stream, Epoch: e.Epoch, Sequence: e.Sequence, Source: b.sourceOf(e.Hub),
		Traceparent: r.Traceparent, CorrelationID: r.CorrelationID, CausationID: r.CausationID,
		OccurredAt: e.OccurredAt, Payload: b.payload[start:len(b.payload):len(b.payload)],
	}
	return txn.Append(&b.message)
}

func (b *batch) sourceOf(hub string) string {
	s, ok := b.source[hub]
	if !ok {
		s = devicestate.Source(hub)
		b.source[hub] = s
	}
	return s
}

// messageIDs makes UUIDs of version 7: 48 bits of milliseconds, then random bits of a ChaCha8 stream.
type messageIDs struct{ random *rand.ChaCha8 }

func (m *messageIDs) next(at time.Time) [16]byte {
	var id [16]byte
	ms := uint64(at.UnixMilli())
	a, c := m.random.Uint64(), m.random.Uint64()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6], id[7] = 0x70|byte(a>>8)&0x0f, byte(a)
	id[8] = 0x80 | byte(c>>56)&0x3f
	for i := range 7 {
		id[9+i] = byte(c >> (8 * i))
	}
	return id
}
