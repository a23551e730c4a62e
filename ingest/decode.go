package ingest

import (
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hubstate/hubstate/devicestate"
)

const (
	maxRoutes    = 1 << 16 // topics remembered; beyond it all are forgotten and learnt again
	itemOverhead = 512     // bytes of an item beside its payload and topic
	keptOfLarge  = 4 << 10 // bytes stored of a payload above the limit
)

// item is one message, decoded, on its way to a transaction.
type item struct {
	gen  *generation
	id   uint16
	qos  byte
	dup  bool
	size int    // counted against the bounds of the queue
	hash uint64 // topic and payload: recognises a redelivered copy

	topic   string
	payload []byte // as received, for ingest_reject

	ignored bool
	reject  *devicestate.Reject // the topic itself is unusable: there is no stream to hold it against
	policy  *devicestate.StreamPolicy
	report  devicestate.Report
}

// abandoned says whether the message is to be forgotten: its connection is over and the broker still owns it.
func (it *item) abandoned() bool { return it.qos > 0 && it.gen.over.Load() }

// decoder turns messages of one session into items. Not safe for concurrent use.
type decoder struct {
	matcher *devicestate.Matcher
	parser  devicestate.Parser
	hub     string
	limit   int
	routes  map[string]*route
}

// route is what is known of one topic; err is set when it leads nowhere.
type route struct {
	topic string
	devicestate.Route
	reject *devicestate.Reject
}

func newDecoder(m *devicestate.Matcher, limits devicestate.Limits, hub string) *decoder {
	limits = limits.WithDefaults()
	return &decoder{matcher: m, parser: devicestate.Parser{Limits: limits}, hub: hub, limit: limits.Payload, routes: map[string]*route{}}
}

// decode reads p, received at now. It never fails: what cannot be read becomes an item with a reject.
func (d *decoder) decode(g *generation, p publish, now time.Time) item {
	r := d.route(p.topic)
	it := item{
		gen: g, id: p.id, qos: p.qos, dup: p.dup, topic: r.topic, payload: p.payload,
		size: len(p.payload) + len(r.topic) + itemOverhead,
	}
	if p.qos > 0 {
		it.hash = hashOf(p.topic, p.payload)
	}
	received := now.Truncate(time.Microsecond) // what the database keeps
	switch {
	case r.reject != nil:
		it.reject = r.reject
	case r.Ignore:
		it.ignored, it.payload, it.size = true, nil, itemOverhead
	default:
		it.policy = r.Policy
		it.report = d.parse(r, p)
	}
	it.report.ReceivedAt, it.report.Retained = received, p.retained
	if p.size > len(p.payload) {
		it.payload = p.payload[:min(keptOfLarge, len(p.payload)):min(keptOfLarge, len(p.payload))]
	}
	return it
}

func (d *decoder) parse(r *route, p publish) devicestate.Report {
	if p.size > len(p.payload) {
		return devicestate.Report{Device: r.Device, Stream: r.Stream, Hub: r.Hub, Reject: &devicestate.Reject{
			Reason: devicestate.ReasonTooLarge, Detail: fmt.Sprintf("payload of %d bytes, limit %d; the first %d are kept", p.size, d.limit, keptOfLarge),
		}}
	}
	report, err := d.parser.Parse(&r.Route, p.payload)
	if err != nil {
		report.Reject = rejectOf(err)
	}
	report.Time = report.Time.Truncate(time.Microsecond) // else a copy is newer than what the database kept of it
	return report
}

func (d *decoder) route(topic []byte) *route {
	if r, ok := d.routes[string(topic)]; ok {
		return r
	}
	if len(d.routes) >= maxRoutes {
		clear(d.routes)
	}
	r := &route{topic: string(topic)}
	found, err := d.matcher.Match(r.topic, d.hub)
	if err != nil {
		r.reject = rejectOf(err)
	}
	r.Route = found
	d.routes[r.topic] = r
	return r
}

// rejectOf keeps what the domain said; its errors are always rejects.
func rejectOf(err error) *devicestate.Reject {
	var r *devicestate.Reject
	if errors.As(err, &r) {
		return r
	}
	return &devicestate.Reject{Reason: devicestate.ReasonNotJSON, Detail: err.Error()}
}

func hashOf(topic, payload []byte) uint64 {
	var h xxhash.Digest
	h.Reset()
	_, _ = h.Write(topic)
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(payload)
	return h.Sum64()
}
