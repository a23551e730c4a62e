package consumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Permanent marks a handler's error as one that no retry can cure: Config.Poison decides at once.
func Permanent(err error) error { return mark(permanent, err) }

// Outage marks a handler's error as one that is not the event's fault (a database or service is away): it is retried
// without end and spends no attempt. It may be nil.
func Outage(err error) error { return mark(outage, err) }

type fault uint8

const (
	outage fault = iota + 1
	permanent
	attempt // a handler's plain error: the event may be at fault
)

// faultError says who is at fault; it changes nothing else about the error it wraps.
type faultError struct {
	fault fault
	err   error
}

func (e *faultError) Error() string { return e.err.Error() }
func (e *faultError) Unwrap() error { return e.err }

func mark(f fault, err error) error {
	if err == nil {
		return nil
	}
	return &faultError{f, err}
}

// faultOf judges an error of Store.Process: what nobody marked came from the store or the network.
func faultOf(err error) fault {
	var marked *faultError
	if errors.As(err, &marked) {
		return marked.fault
	}
	return outage
}

// byHandler marks an error of a handler that has not marked it itself. A cancelled context is not the event's fault.
func byHandler(ctx context.Context, err error) error {
	var marked *faultError
	if err == nil || errors.As(err, &marked) || ctx.Err() != nil {
		return err
	}
	return mark(attempt, err)
}

// delays are the waits between attempts: doubling, with full jitter in their upper half.
type delays struct {
	next, max time.Duration
}

func (r Retry) delays() delays { return delays{next: r.MinDelay, max: r.MaxDelay} }

func (d *delays) take() time.Duration {
	delay := d.next/2 + rand.N(d.next/2+1)
	d.next = min(2*d.next, d.max)
	return delay
}

// sleep reports whether the delay has passed; false when stop or ctx came first.
func sleep(ctx context.Context, stop <-chan struct{}, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
		return false
	case <-ctx.Done():
		return false
	}
}
