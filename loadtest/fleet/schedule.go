package fleet

import (
	"math"
	"math/rand/v2"
	"time"
)

// Shape is how the rate of a fleet changes over time.
type Shape string

// The shapes. Burst alternates five seconds at a tenth of the rate with one second at the full rate; Diurnal is one
// sine wave over the whole run, from a fifth of the rate to the full rate.
const (
	Steady  Shape = "steady"
	Burst   Shape = "burst"
	Diurnal Shape = "diurnal"
)

// factor is the share of the full rate at instant at of a run of length total.
func (s Shape) factor(at, total time.Duration) float64 {
	switch s {
	case Burst:
		if at%(6*time.Second) < 5*time.Second {
			return 0.1
		}
		return 1
	case Diurnal:
		return 0.6 - 0.4*math.Cos(2*math.Pi*float64(at)/float64(max(total, 1)))
	}
	return 1
}

// schedule says when each report of one connection is due, whatever happens to the ones before: an open loop, so that a
// stall of the pipeline lengthens latencies instead of hiding in a lower rate.
type schedule struct {
	shape Shape
	rate  float64 // reports per second of this connection at factor 1
	total time.Duration
	at    time.Duration // when the next one is due
}

// newSchedule starts at a random phase, so that connections do not fire together.
func newSchedule(rng *rand.Rand, shape Shape, rate float64, total time.Duration) schedule {
	s := schedule{shape: shape, rate: rate, total: total}
	s.at = time.Duration(rng.Float64() * float64(s.interval()))
	return s
}

func (s *schedule) interval() time.Duration {
	return time.Duration(float64(time.Second) / (s.rate * s.shape.factor(s.at, s.total)))
}

// next returns when the next report is due; false after the end of the run.
func (s *schedule) next() (time.Duration, bool) {
	due := s.at
	if due >= s.total {
		return 0, false
	}
	s.at += s.interval()
	return due, true
}
