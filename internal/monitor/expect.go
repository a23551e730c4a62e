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

// NewExpectations reads the streams of profiles. An event does not say by which profile it was read: where two profiles
// expect different things of a stream of the same name, the longer time counts and the stream is returned in conflicts.
func NewExpectations(profiles []devicestate.Profile) (e Expectations, conflicts []string) {
	e.streams = map[string]Expectation{}
	for _, p := range profiles {
		for name, policy := range p.Streams {
			if policy.Ignore || policy.Emit == devicestate.EmitNone {
				continue // never on the topic
			}
			got := expectation(policy)
			known, twice := e.streams[name]
			if twice && known != got {
				conflicts = append(conflicts, name)
				got.Silent, got.MaxSkew = max(got.Silent, known.Silent), max(got.MaxSkew, known.MaxSkew)
			}
			e.streams[name] = got
		}
	}
	return e, conflicts
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
