package peers

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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

// awaitArrival polls the topic's ends until it holds n records more than before.
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

// order reads the whole topic and counts records that are repeated and records that come after a later one of their key.
func order(ctx context.Context, brokers []string, topic string) (repeated, disordered int64, err error) {
	ends, err := witness.EndOffsets(ctx, brokers, topic)
	if err != nil {
		return 0, 0, err
	}
	start, left := map[int32]kgo.Offset{}, int64(0)
	for p, end := range ends {
		start[p] = kgo.NewOffset().At(0)
		left += end
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: start}))
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	last := map[string]int64{}
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return 0, 0, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			sequence := sequenceOf(r)
			switch before := last[string(r.Key)]; {
			case sequence == before:
				repeated++
			case sequence < before:
				disordered++
			default:
				last[string(r.Key)] = sequence
			}
		})
	}
	return repeated, disordered, nil
}

func sequenceOf(r *kgo.Record) int64 {
	for _, h := range r.Headers {
		if h.Key == "ce_sequence" {
			n, _ := strconv.ParseInt(string(h.Value), 10, 64)
			return n // what cannot be read is 0 and shows as disorder
		}
	}
	return 0
}
