package monitor

import (
	"time"

	"github.com/hubstate/hubstate/devicestate"
)

// anyStream is the policy of the streams that a profile does not name.
const anyStream = "*"

// Expectations knows how long each stream may be quiet. Built once, read by many.
type Expectations struct {
	streams map[string]Expectation
}

// Expectation is what is expected of one stream. Silent is zero for a stream that reports only when something changes
// (a connection stream): its quiet says nothing.
type Expectation struct {
	Silent     time.Duration
	MaxSkew    time.Duration // a device's clock may be off by so much
	Connection bool
}

// NewExpectations reads the streams of profiles. An event does not say by which profile it was read: where several may
// have read a stream, by its name or by their "*", the longest time counts. Names of which two profiles expect different
// things are returned in conflicts.
func NewExpectations(profiles []devicestate.Profile) (e Expectations, conflicts []string) {
	e.streams = map[string]Expectation{}
	for _, p := range profiles {
		for name, policy := range p.Streams {
			if !onTopic(policy) {
				continue
			}
			got := expectation(policy)
			known, twice := e.streams[name]
			if twice && known != got {
				if name != anyStream {
					conflicts = append(conflicts, name)
				}
				got = longer(known, got)
			}
			e.streams[name] = got
		}
	}
	for _, p := range profiles {
		e.coverTheRest(p)
	}
	return e, conflicts
}

// coverTheRest takes the "*" of a profile for the streams that only other profiles name: its devices may have them too.
func (e Expectations) coverTheRest(p devicestate.Profile) {
	rest, ok := p.Streams[anyStream]
	if !ok || !onTopic(rest) {
		return
	}
	for name, known := range e.streams {
		if _, named := p.Streams[name]; !named {
			e.streams[name] = longer(known, expectation(rest))
		}
	}
}

// onTopic: the others emit no events, so nothing is expected of them here.
func onTopic(p devicestate.StreamPolicy) bool { return !p.Ignore && p.Emit != devicestate.EmitNone }

// longer is what both allow. A connection stream may be quiet for ever.
func longer(a, b Expectation) Expectation {
	both := Expectation{MaxSkew: max(a.MaxSkew, b.MaxSkew), Connection: a.Connection || b.Connection}
	if !both.Connection {
		both.Silent = max(a.Silent, b.Silent)
	}
	return both
}

func expectation(p devicestate.StreamPolicy) Expectation {
	p = p.WithDefaults()
	if p.Kind == devicestate.KindConnection {
		return Expectation{Connection: true, MaxSkew: p.MaxSkew}
	}
	return Expectation{Silent: p.Expect, MaxSkew: p.MaxSkew}
}

// Of is the expectation of a stream; one that no profile names is expected like any other, by the default.
func (e Expectations) Of(stream string) Expectation {
	if x, ok := e.streams[stream]; ok {
		return x
	}
	if x, ok := e.streams[anyStream]; ok {
		return x
	}
	return expectation(devicestate.StreamPolicy{})
}
