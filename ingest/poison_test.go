package ingest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// One device sends 1,000 poison reports a second among 2,000 good devices: the good ones' p99 from arrival to commit is not
// more than doubled, stored rejects keep to their cap, memory stays flat.
func TestPoison_OneDeviceDoesNotSlowTheOthers_N3(t *testing.T) { // not parallel: it compares latencies
	b := newBench(t)
	var collected []time.Duration
	b.writer.reached = func(at step) {
		if at != stepAck {
			return
		}
		now := time.Now()
		for i := range b.writer.items {
			if it := &b.writer.items[i]; it.report.Reject == nil && it.gen != nil {
				collected = append(collected, now.Sub(it.report.ReceivedAt))
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.writer.run(ctx) }() // ends with cancel, below
	measure := func(from int, poison bool) time.Duration {
		b.feed(from, 2*time.Second, poison)
		if err := b.writer.flush(ctx); err != nil {
			t.Fatal(err)
		}
		mine := slices.Clone(collected)
		collected = collected[:0]
		slices.Sort(mine)
		return mine[len(mine)*99/100]
	}
	measure(1, true) // every device is known, caps are reached
	before := heap()
	slowed := true
	for try := 0; try < 4 && slowed; try++ { // other packages' tests share the machine: a slow product is slow each time
		slowed = poisonSlows(t, measure, 10+10*try)
	}
	if slowed {
		t.Error("poison slows the others")
	}
	grown := heap() - before
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := query[int64](b, `SELECT count(*) FROM ingest_reject`); n > b.service.cfg.RejectsPerDevice {
		t.Errorf("%d rejects stored", n)
	}
	if grown > 16<<20 {
		t.Errorf("heap grew by %d KB", grown>>10)
	}
}

// poisonSlows compares the medians of three alternating pairs of 99th percentiles.
func poisonSlows(t *testing.T, measure func(from int, poison bool) time.Duration, from int) bool {
	var clean, poisoned []time.Duration
	for round := range 3 {
		clean = append(clean, measure(from+2*round, false))
		poisoned = append(poisoned, measure(from+1+2*round, true))
	}
	slices.Sort(clean)
	slices.Sort(poisoned)
	t.Logf("p99 without poison %v, with %v", clean, poisoned)
	return poisoned[1] > 2*clean[1]+20*time.Millisecond // the slack is a scheduler's turn
}

// feed puts 2,000 good reports a second (and 1,000 bad ones) into the queue, a few each millisecond.
func (b *bench) feed(counter int, d time.Duration, poison bool) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	started, sent := time.Now(), 0
	for now := range tick.C {
		if now.Sub(started) >= d {
			return
		}
		for ; sent < int(now.Sub(started)/(500*time.Microsecond)); sent++ {
			b.now = time.Now()
			device := sent % 2000
			b.put(b.message(fmt.Sprintf("hubs/h/devices/good-%d/state", device), fmt.Sprintf(`{"seq":%d,"state":{"n":%d}}`, counter*10+sent/2000, sent)))
			if poison && sent%2 == 0 {
				b.put(b.message("hubs/h/devices/poison/state", `{"seq":`))
			}
		}
	}
}

func (b *bench) put(it item) {
	if !b.writer.queue.put(&it, time.Second) {
		b.t.Error("the queue is full")
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
