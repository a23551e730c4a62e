package outbox

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// delivery is one record of the topic.
type delivery struct {
	device   string
	epoch    int64
	sequence int64
	position int64
	skipped  string
	value    string
	seenAt   time.Time
	headers  map[string]string
}

// reader consumes the topic from its beginning.
func (b *bundle) reader() *kgo.Client {
	b.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumeTopics(b.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	return client
}

// read polls the topic from its beginning until ok says it has seen enough, or fails after within.
func (b *bundle) read(within time.Duration, ok func([]delivery) bool) []delivery {
	b.t.Helper()
	client := b.reader()
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), within)
	defer cancel()
	var all []delivery
	for !ok(all) {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			b.t.Fatalf("not within %s: saw %d records", within, len(all))
		}
		fetches.EachError(func(_ string, p int32, err error) { b.t.Logf("read partition %d: %v", p, err) })
		fetches.EachRecord(func(r *kgo.Record) { all = append(all, deliveryOf(r)) })
	}
	return all
}

func deliveryOf(r *kgo.Record) delivery {
	d := delivery{device: string(r.Key), value: string(r.Value), seenAt: time.Now(), headers: make(map[string]string)}
	for _, h := range r.Headers {
		d.headers[h.Key] = string(h.Value)
	}
	d.epoch, _ = strconv.ParseInt(d.headers[HeaderEpoch], 10, 64)
	d.sequence, _ = strconv.ParseInt(d.headers[HeaderSequence], 10, 64)
	d.position, _ = strconv.ParseInt(d.headers[HeaderPosition], 10, 64)
	d.skipped = d.headers[HeaderSkipped]
	return d
}

// unique waits for n different rows.
func unique(n int) func([]delivery) bool {
	seen := make(map[string]bool)
	done := 0
	return func(all []delivery) bool {
		for ; done < len(all); done++ {
			seen[all[done].device+"/"+strconv.FormatInt(all[done].sequence, 10)] = true
		}
		return len(seen) >= n
	}
}

// checkOrder fails unless the first deliveries of each device are dense and increasing from 1 (D2, O2); missing names
// sequences that may be left out. It returns how many records were repeats.
func checkOrder(t testing.TB, all []delivery, missing map[string]bool) (repeats int) {
	t.Helper()
	next := make(map[string]int64)
	for _, d := range all {
		want := next[d.device] + 1
		for missing[d.device+"/"+strconv.FormatInt(want, 10)] {
			want++
		}
		switch {
		case d.sequence == want:
			next[d.device] = want
		case d.sequence < want:
			repeats++
		default:
			t.Fatalf("%s: sequence %d arrived before %d was delivered", d.device, d.sequence, want)
		}
	}
	return repeats
}
