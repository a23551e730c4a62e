package outbox

import (
	"math/rand/v2"
	"time"
)

// BreakerState is where a Breaker stands.
type BreakerState uint8

const (
	// BreakerClosed lets everything through.
	BreakerClosed BreakerState = iota
	// BreakerOpen lets nothing through before RetryAt.
	BreakerOpen
	// BreakerHalfOpen has let one probe through and waits for what becomes of it.
	BreakerHalfOpen
)

// String returns closed, open or half-open.
func (s BreakerState) String() string {
	return [...]string{"closed", "open", "half-open", "?"}[s&3]
}

// Breaker keeps a relay from hammering a broker that is away. It opens at the first Outage or Throttled verdict, for a
// time that grows from failure to failure; then one probe goes through, and its fate decides. A Permanent or Unknown
// verdict is an answer: the broker is there.
//
// It is pure state: the caller brings the time. The zero value is closed and ready. Not safe for concurrent use.
type Breaker struct {
	state    BreakerState
	failures int
	retryAt  time.Time
	code     string
	random   func() float64 // nil = math/rand
}

// Allow is whether something may be sent now. While the breaker is not closed it is true once per wait, for the probe;
// who got that true must report with Success, Failure or Abandon.
func (b *Breaker) Allow(now time.Time) bool {
	switch b.state {
	case BreakerClosed:
		return true
	case BreakerOpen:
		if now.Before(b.retryAt) {
			return false
		}
		b.state = BreakerHalfOpen
		return true
	}
	return false
}

// Success closes the breaker: something was acknowledged. That holds for an acknowledgement from before it opened, too.
func (b *Breaker) Success(time.Time) { *b = Breaker{random: b.random} }

// Failure tells the breaker what a send came to.
func (b *Breaker) Failure(now time.Time, v Verdict) {
	if v.Kind != Outage && v.Kind != Throttled {
		b.Success(now)
		return
	}
	if b.state == BreakerOpen {
		return // sent before it opened; the wait is already running, and ten such failures are one outage
	}
	b.failures++
	b.state = BreakerOpen
	b.code = v.Code
	b.retryAt = now.Add(v.Backoff.Delay(b.failures, b.draw()))
}

// Abandon takes back a probe that will never report (its bucket was handed over): the next Allow is a probe again.
func (b *Breaker) Abandon(now time.Time) {
	if b.state == BreakerHalfOpen {
		b.state, b.retryAt = BreakerOpen, now
	}
}

// State is where the breaker stands; an open one whose wait is over stays open until somebody asks Allow.
func (b *Breaker) State() BreakerState { return b.state }

// RetryAt is when the next probe may go; the zero time when the breaker is not open.
func (b *Breaker) RetryAt() time.Time {
	if b.state != BreakerOpen {
		return time.Time{}
	}
	return b.retryAt
}

// Failures is how many waits in a row have ended in a failure.
func (b *Breaker) Failures() int { return b.failures }

// Code is the error code that opened the breaker; empty when it is closed.
func (b *Breaker) Code() string { return b.code }

func (b *Breaker) draw() float64 {
	if b.random != nil {
		return b.random()
	}
	return rand.Float64()
}
