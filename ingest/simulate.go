package ingest

import (
	"fmt"
	"time"

	"github.com/hubstate/hubstate/devicestate"
)

// Simulation shows what ingest would make of messages: what is extracted, the class of each and why. It needs no database
// and no broker; states live in memory, one message is one batch. Not safe for concurrent use.
type Simulation struct {
	decoder *decoder
	gen     *generation
	states  map[streamKey]*devicestate.State
	order   []streamKey
}

// Outcome is what became of one simulated message.
type Outcome struct {
	Topic    string   `json:"topic"`
	Profile  string   `json:"profile,omitempty"`
	Device   string   `json:"device_id,omitempty"`
	Stream   string   `json:"stream,omitempty"`
	Hub      string   `json:"hub_id,omitempty"`
	Counter  *int64   `json:"counter"`
	Boot     *int64   `json:"boot"`
	Time     *string  `json:"time"`
	Class    string   `json:"class"`
	Row      int      `json:"row"` // of the table of Next; 0 when none was asked
	Why      string   `json:"why"`
	Marks    string   `json:"marks,omitempty"`
	Gaps     []string `json:"gaps,omitempty"`
	Old      bool     `json:"old,omitempty"`
	Event    bool     `json:"event"`
	Sequence int64    `json:"sequence"` // of the stream, after the message
	State    string   `json:"state,omitempty"`
}

// StreamSummary is where one simulated stream ended.
type StreamSummary struct {
	Device      string `json:"device_id"`
	Stream      string `json:"stream"`
	Counter     *int64 `json:"counter"`
	Sequence    int64  `json:"sequence"`
	Missed      int64  `json:"missed"`
	Late        int64  `json:"late"`
	Duplicate   int64  `json:"duplicate"`
	Quarantined int64  `json:"quarantined"`
}

// NewSimulation uses the profiles, limits and hub of cfg.
func NewSimulation(cfg Config) (*Simulation, error) {
	cfg = cfg.withDefaults()
	profiles, err := LoadProfiles(cfg.Profiles)
	if err != nil {
		return nil, err
	}
	matcher, err := devicestate.NewMatcher(profiles, cfg.Limits())
	if err != nil {
		return nil, err
	}
	return &Simulation{decoder: newDecoder(matcher, cfg.Limits(), cfg.Hub), gen: newGeneration(1), states: map[streamKey]*devicestate.State{}}, nil
}

// Feed takes one message as the broker would deliver it at that instant.
func (s *Simulation) Feed(topic string, payload []byte, retained bool, at time.Time) Outcome {
	size := len(payload)
	it := s.decoder.decode(s.gen, publish{topic: []byte(topic), payload: payload[:min(size, s.decoder.limit)], size: size, retained: retained}, at)
	r := &it.report
	o := Outcome{Topic: topic, Device: r.Device, Stream: r.Stream, Hub: r.Hub, Counter: pointer(r.Counter), Boot: pointer(r.Boot), State: string(r.State)}
	if route := s.decoder.route([]byte(topic)); route.reject == nil {
		o.Profile = route.Profile
	}
	if !r.Time.IsZero() {
		text := r.Time.Format(time.RFC3339Nano)
		o.Time = &text
	}
	switch {
	case it.ignored:
		o.Class, o.Why = devicestate.Ignored.String(), "the profile ignores this topic or stream"
	case it.policy == nil:
		o.Class, o.Why = devicestate.Quarantined.String(), it.reject.Error()
	default:
		s.decide(&o, &it)
	}
	return o
}

func (s *Simulation) decide(o *Outcome, it *item) {
	key := streamKey{it.report.Device, it.report.Stream}
	prev, known := s.states[key]
	if !known {
		prev = nil
		s.order = append(s.order, key)
	}
	d := devicestate.Fold(prev, []devicestate.Report{it.report}, it.report.ReceivedAt, it.policy)[0]
	if d.Changed {
		s.states[key] = &d.State
	}
	o.Class, o.Row, o.Why, o.Marks, o.Old = d.Class.String(), d.Row, explain(&d), d.Marks.String(), d.Old
	o.Event, o.Sequence = d.Emit, d.State.Sequence
	for _, g := range d.Gaps {
		o.Gaps = append(o.Gaps, fmt.Sprintf("%d-%d", g.From, g.To))
	}
}

// Streams are the states at the end, in order of first appearance.
func (s *Simulation) Streams() []StreamSummary {
	var list []StreamSummary
	for _, key := range s.order {
		st := s.states[key]
		if st == nil {
			continue
		}
		list = append(list, StreamSummary{
			Device: key.device, Stream: key.stream, Counter: pointer(st.Counter), Sequence: st.Sequence, Missed: st.Missed,
			Late: st.Late, Duplicate: st.Duplicate, Quarantined: st.Quarantined,
		})
	}
	return list
}

func pointer(n devicestate.Number) *int64 {
	if !n.OK {
		return nil
	}
	return &n.V
}

// explain says in words what the row of the table says.
func explain(d *devicestate.Decision) string {
	if d.Reject != nil {
		return d.Reject.Error()
	}
	why := rowText(d.Row)
	switch {
	case d.Class == devicestate.Discarded:
		return why + "; discarded: buffered while the device was offline (on_old: discard)"
	case d.Class == devicestate.Applied && !d.Emit:
		return why + "; no event (emit)"
	}
	return why
}

func rowText(row int) string {
	texts := [...]string{
		2: "connection stream: arrival order is the truth", 3: "first report of its stream: a baseline", 4: "an operator's forced reboot was pending",
		5: "higher boot", 6: "lower boot", 7: "no counter: known already", 8: "no counter: device time is older than the stored one",
		9: "no counter: newer or of unknown age", 10: "same counter, newer device time: the device started again", 11: "same counter, same content",
		12: "same counter, other content, device time not newer", 13: "higher counter, but from before the last reboot or wrap (a straggler)",
		14: "higher counter", 15: "the counter wrapped at its modulus", 16: "lower counter and newer device time: the device started again",
		17: "lower counter after a long silence: the device started again", 18: "lower counter: older than what is known",
	}
	if row < 0 || row >= len(texts) {
		return ""
	}
	return texts[row]
}
