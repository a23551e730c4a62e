package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/hubstate/hubstate/loadtest/witness"
)

// arrival is how a topic filled up.
type arrival struct {
	First, Half, Last time.Time // the first sight of anything, of half, and of all
	seen              int64     // at First
}

// rate is records per second from the first sight to the last record; half that of the second half alone, when a
// virtual machine has warmed up.
func (a arrival) rate(n int64) (whole, half float64) {
	return float64(n-a.seen) / a.Last.Sub(a.First).Seconds(), float64(n-n/2) / a.Last.Sub(a.Half).Seconds()
}

// awaitArrival polls the topic's ends until it holds n records more than before: that costs next to nothing, reading them would.
func awaitArrival(ctx context.Context, brokers []string, topic string, before, n int64, each func()) (a arrival, err error) {
	deadline := time.Now().Add(10 * time.Minute)
	for {
		count, err := count(ctx, brokers, topic)
		if err != nil {
			return a, err
		}
		now, have := time.Now(), count-before
		if have > 0 && a.First.IsZero() {
			a.First, a.seen = now, have
		}
		if have >= n/2 && a.Half.IsZero() {
			a.Half = now
		}
		if have >= n {
			a.Last = now
			return a, nil
		}
		if now.After(deadline) {
			return a, fmt.Errorf("%d of %d records arrived on %s in 10 minutes", have, n, topic)
		}
		each()
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}

func count(ctx context.Context, brokers []string, topic string) (int64, error) {
	ends, err := witness.EndOffsets(ctx, brokers, topic)
	var n int64
	for _, end := range ends {
		n += end
	}
	return n, err
}
