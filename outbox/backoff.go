package outbox

import (
	"math"
	"time"
)

// Backoff is exponential with full jitter: the wait before attempt n+1 is random × min(Max, Base × 2^(n-1)), so that
// relays that failed together do not come back together.
type Backoff struct {
	Base time.Duration // the longest wait after the first failure
	Max  time.Duration // the longest wait ever
}

// Delay is the wait after failure number attempt (from 1), for a random number in [0, 1). It is pure.
func (b Backoff) Delay(attempt int, random float64) time.Duration {
	ceiling := float64(b.Max)
	if exponent := attempt - 1; exponent < 62 {
		ceiling = min(ceiling, float64(b.Base)*math.Exp2(float64(max(exponent, 0))))
	}
	return time.Duration(random * ceiling)
}
