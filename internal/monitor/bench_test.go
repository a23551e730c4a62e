package monitor

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
)

// BenchmarkView_Process applies batches of 500 events of 20,000 devices to a real Redis. One operation is one event.
func BenchmarkView_Process(b *testing.B) {
	v := newBench(b)
	const size, devices = 500, 20000
	sequence := make([]int64, devices)
	at := 0
	b.ReportAllocs()
	before := redisCPU(b, v)
	next := int64(0)
	for done := 0; done < b.N; done += size {
		b.StopTimer()
		batch := &consumer.Batch{Confirmed: consumer.Unknown}
		for range size {
			sequence[at]++
			d := event(sequence[at], noon, device(fmt.Sprintf("acme/agv-%06d", at)), hub("hub-"+strconv.Itoa(at%10)))
			d.Value = devicestate.AppendEvent(nil, &d.Event)
			batch.Deliveries = append(batch.Deliveries, d)
			at = (at + 1) % devices
		}
		next += size
		batch.Next = next
		b.StartTimer()
		if err := v.Process(b.Context(), batch, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric((redisCPU(b, v)-before)*1e6/float64(b.N), "redis-µs/event")
}

// redisCPU is what the server's main thread has used, in seconds: wall time says little on a shared machine.
func redisCPU(b *testing.B, v *bench) float64 {
	b.Helper()
	info, err := v.rdb.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	total := 0.0
	for line := range strings.Lines(info) {
		for _, key := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok {
				seconds, err := strconv.ParseFloat(value, 64)
				if err != nil {
					b.Fatal(err)
				}
				total += seconds
			}
		}
	}
	return total
}

// BenchmarkView_Overview reads three hubs of 20,000 devices as the page does once a second.
func BenchmarkView_Overview(b *testing.B) {
	v := newBench(b)
	for from := 0; from < 20000; from += 500 {
		var ds []*consumer.Delivery
		for i := from; i < from+500; i++ {
			ds = append(ds, event(1, ago(time.Duration(i)*time.Millisecond), device(name(i)), hub("hub-"+strconv.Itoa(i%3))))
		}
		v.apply(ds...)
	}
	for b.Loop() {
		hubs, err := v.Hubs(b.Context())
		if err != nil || len(hubs) != 3 {
			b.Fatal(len(hubs), err)
		}
		if err := v.Summarize(b.Context(), hubs, Question{AsOf: noon, Now: noon, Cells: overviewCells, SilentPercent: 50}); err != nil {
			b.Fatal(err)
		}
	}
}
