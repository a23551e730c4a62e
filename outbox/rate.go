package outbox

import "time"

// Rate bounds what is sent in a second. Zero fields do not bound.
type Rate struct {
	Records int // records a second
	Bytes   int // bytes of keys, headers and values a second, before compression
}

// Limiter is a token bucket over a Rate that holds at most one second's worth, so that a relay which idled does not
// greet the broker with a flood. It is pure state: the caller brings the time. Not safe for concurrent use.
type Limiter struct {
	rate           Rate
	at             time.Time
	records, bytes float64
}

// NewLimiter returns a full limiter.
func NewLimiter(r Rate) *Limiter {
	return &Limiter{rate: r, records: float64(r.Records), bytes: float64(r.Bytes)}
}

// Wait is how long to wait before anything more may be sent; 0 = now.
func (l *Limiter) Wait(now time.Time) time.Duration {
	l.refill(now)
	return max(until(l.records, l.rate.Records), until(l.bytes, l.rate.Bytes))
}

// Spend takes what was sent. It may overdraw: a batch is not cut to fit the bucket, the next one waits longer.
func (l *Limiter) Spend(now time.Time, records, bytes int) {
	l.refill(now)
	l.records -= float64(records)
	l.bytes -= float64(bytes)
}

func (l *Limiter) refill(now time.Time) {
	if l.at.IsZero() || now.Before(l.at) {
		l.at = now
		return
	}
	passed := now.Sub(l.at).Seconds()
	l.at = now
	l.records = min(l.records+passed*float64(l.rate.Records), float64(l.rate.Records))
	l.bytes = min(l.bytes+passed*float64(l.rate.Bytes), float64(l.rate.Bytes))
}

// until is the time in which a bucket in debt comes back to zero.
func until(level float64, perSecond int) time.Duration {
	if perSecond <= 0 || level >= 0 {
		return 0
	}
	return time.Duration(-level / float64(perSecond) * float64(time.Second))
}
