package outbox

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

func half() float64 { return 0.5 }

func TestBreaker_OpensAtAnOutageAndGrowsItsWaits(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000, 0)
	b := Breaker{random: half}
	verdict := Classify(kerr.NotEnoughReplicas)
	for _, wait := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		if !b.Allow(now) {
			t.Fatal("closed, or its wait is over: must allow")
		}
		b.Failure(now, verdict)
		if b.State() != BreakerOpen || !b.RetryAt().Equal(now.Add(wait)) || b.Code() != "NOT_ENOUGH_REPLICAS" {
			t.Fatalf("state %v, retry in %v, want open and %v", b.State(), b.RetryAt().Sub(now), wait)
		}
		if b.Allow(now.Add(wait - 1)) {
			t.Fatal("allowed before its time")
		}
		now = now.Add(wait)
	}
}

func TestBreaker_HalfOpenLetsOneProbeThrough(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000, 0)
	b := Breaker{random: half}
	b.Failure(now, Classify(kerr.RequestTimedOut))
	now = now.Add(time.Second)
	if !b.Allow(now) || b.Allow(now) || b.Allow(now.Add(time.Hour)) {
		t.Fatal("half-open must allow exactly one probe")
	}
	if b.State() != BreakerHalfOpen || !b.RetryAt().IsZero() {
		t.Fatalf("state %v", b.State())
	}
	b.Abandon(now)
	if !b.Allow(now) {
		t.Fatal("an abandoned probe must be given to the next")
	}
	b.Success(now)
	if b.State() != BreakerClosed || b.Failures() != 0 || !b.Allow(now) || !b.Allow(now) {
		t.Fatal("a successful probe must close the breaker")
	}
}

func TestBreaker_AnAnswerAboutTheRowProvesTheBrokerThere(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000, 0)
	for _, err := range []error{kerr.MessageTooLarge, errors.New("new")} {
		b := Breaker{random: half}
		b.Failure(now, Classify(err))
		if b.State() != BreakerClosed {
			t.Errorf("%v opened the breaker", err)
		}
		b.Failure(now, Classify(kerr.RequestTimedOut))
		b.Allow(now.Add(time.Second))
		b.Failure(now.Add(time.Second), Classify(err))
		if b.State() != BreakerClosed {
			t.Errorf("a probe answered with %v left the breaker %v", err, b.State())
		}
	}
}

// TestBreaker_ManyFailuresOfOneOutageCountOnce: all records of a failed group report; that is one failure, not 500.
func TestBreaker_ManyFailuresOfOneOutageCountOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000, 0)
	b := Breaker{random: half}
	for range 500 {
		b.Failure(now, Classify(kerr.RequestTimedOut))
	}
	if b.Failures() != 1 || b.RetryAt().Sub(now) != 50*time.Millisecond {
		t.Fatalf("%d failures, retry in %v", b.Failures(), b.RetryAt().Sub(now))
	}
}

// TestBreaker_NeverStuck: whatever happened, some later moment allows a send, unless a probe is out.
func TestBreaker_NeverStuck(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000, 0)
		b := Breaker{random: half}
		probe := false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2_000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.SampledFrom([]string{"allow", "success", "outage", "row", "abandon"}).Draw(t, "op") {
			case "allow":
				open := b.State() != BreakerClosed
				if allowed := b.Allow(now); allowed && open {
					if probe {
						t.Fatal("a second probe")
					}
					probe = true
				}
			case "success":
				b.Success(now)
				probe = false
			case "outage":
				b.Failure(now, Classify(kerr.RequestTimedOut))
				probe = false
			case "row":
				b.Failure(now, Classify(kerr.MessageTooLarge))
				probe = false
			case "abandon":
				b.Abandon(now)
				probe = false
			}
		}
		if !probe && !b.Allow(now.Add(time.Hour)) {
			t.Fatalf("stuck %v", b.State())
		}
	})
}

func TestLimiter_HoldsTheRateAndOneSecondOfBurst(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000, 0)
	l := NewLimiter(Rate{Records: 1_000})
	sent := 0
	for end := now.Add(10 * time.Second); now.Before(end); {
		if wait := l.Wait(now); wait > 0 {
			now = now.Add(wait)
			continue
		}
		l.Spend(now, 500, 1<<30) // bytes are not bounded
		sent += 500
	}
	if sent < 10_000 || sent > 11_500 {
		t.Fatalf("%d records in 10 s at 1,000/s", sent)
	}
}

func TestLimiter_BytesBoundToo(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000, 0)
	l := NewLimiter(Rate{Records: 1_000_000, Bytes: 1_000})
	l.Spend(now, 1, 3_000)
	if wait := l.Wait(now); wait != 2*time.Second {
		t.Fatalf("3,000 of 1,000 bytes spent: wait %v, want 2 s", wait)
	}
	if wait := l.Wait(now.Add(3 * time.Second)); wait != 0 {
		t.Fatalf("wait %v after the debt is paid", wait)
	}
	if wait := NewLimiter(Rate{}).Wait(now); wait != 0 {
		t.Fatalf("no rate, but wait %v", wait)
	}
}
