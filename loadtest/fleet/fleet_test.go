package fleet

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubstate/hubstate/internal/faultnet"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/hubstate/hubstate/loadtest/ledger"
)

// arrivals is what a subscriber saw: per device the numbers of its reports, in order.
type arrivals struct {
	mu  sync.Mutex
	all map[string][]uint32
	n   int
}

func subscribe(t *testing.T, broker, prefix string) *arrivals {
	t.Helper()
	got := &arrivals{all: map[string][]uint32{}}
	opts := mqtt.NewClientOptions().AddBroker(strings.Replace(broker, "mqtt://", "tcp://", 1)).SetClientID(prefix + "-subscriber").SetOrderMatters(true)
	client := mqtt.NewClient(opts)
	if token := client.Connect(); token.Wait() && token.Error() != nil {
		t.Fatal(token.Error())
	}
	t.Cleanup(func() { client.Disconnect(0) })
	token := client.Subscribe("hubs/+/devices/+/state", 1, func(_ mqtt.Client, m mqtt.Message) {
		device := strings.Split(m.Topic(), "/")[3]
		if !strings.HasPrefix(device, prefix+"-") {
			return
		}
		got.mu.Lock()
		defer got.mu.Unlock()
		got.all[device] = append(got.all[device], ledger.NumberIn(m.Payload()))
		got.n++
	})
	if token.Wait() && token.Error() != nil {
		t.Fatal(token.Error())
	}
	return got
}

func (a *arrivals) await(t *testing.T, n int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		a.mu.Lock()
		have := a.n
		a.mu.Unlock()
		if have >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the broker delivered %d of at least %d reports", have, n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func startFleet(t *testing.T, load Load, broker string) *Fleet {
	t.Helper()
	f, err := New(load, "test", 1, broker, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFleet_KeepsTheDevicesOrderAcrossBrokenConnections: whatever breaks, first sights of a device's reports come in the
// order it made them, and what is in the ledger as acknowledged has arrived. The whole oracle stands on this.
func TestFleet_KeepsTheDevicesOrderAcrossBrokenConnections(t *testing.T) {
	t.Parallel()
	broker := testenv.MQTT(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	proxy, err := faultnet.New(ctx, strings.TrimPrefix(broker, "mqtt://"))
	if err != nil {
		t.Fatal(err)
	}
	got := subscribe(t, broker, "order")
	f := startFleet(t, Load{Devices: 60, Connections: 3, Rate: 4000, Duration: 2 * time.Second, Prefix: "order"}, "mqtt://"+proxy.Addr())
	go func() { // ends with ctx
		for at := time.NewTicker(300 * time.Millisecond); ctx.Err() == nil; <-at.C {
			proxy.Reset()
		}
	}()
	if err := f.Run(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if f.Broken.Load() == 0 || f.Dups.Load() == 0 {
		t.Fatalf("nothing broke: %d connections lost, %d repeated", f.Broken.Load(), f.Dups.Load())
	}
	published, acknowledged := f.Ledger().Totals()
	if published != acknowledged || published < 7900 {
		t.Fatalf("published %d, acknowledged %d", published, acknowledged)
	}
	got.await(t, int(published))
	got.mu.Lock()
	defer got.mu.Unlock()
	for _, s := range f.Ledger().Streams {
		checkOrder(t, s, got.all[s.Device])
	}
}

// checkOrder wants every report of s, first sights in order.
func checkOrder(t *testing.T, s *ledger.Stream, numbers []uint32) {
	t.Helper()
	last, seen := uint32(0), map[uint32]bool{}
	for _, n := range numbers {
		if !seen[n] && n != last+1 {
			t.Fatalf("%s: report %d first seen after %d", s.Device, n, last)
		}
		seen[n] = true
		last = max(last, n)
	}
	if len(seen) != len(s.Reports) {
		t.Fatalf("%s: %d of %d reports arrived", s.Device, len(seen), len(s.Reports))
	}
}

// TestFleet_RepeatsItselfForASeed: the same seed makes the same reports, bytes and all.
func TestFleet_RepeatsItselfForASeed(t *testing.T) {
	t.Parallel()
	mix := Mix{Reboot: 0.05, Resend: 0.1, Straggler: 0.1, Conflict: 0.05, Poison: 0.05, Jump: 0.1, Bootless: 0.5}
	make := func() *Fleet {
		f := startFleet(t, Load{Devices: 7, Connections: 2, Rate: 1000, Duration: time.Second, Mix: mix, PayloadMax: 300}, "mqtt://127.0.0.1:1")
		f.book.Start = time.Unix(1_800_000_000, 0)
		for _, l := range f.links {
			for _, more := l.make(); more; _, more = l.make() {
				l.pending = nil
			}
		}
		return f
	}
	a, b := make().book, make().book
	kinds := map[ledger.Kind]int{}
	for i := range a.Streams {
		for n, r := range a.Streams[i].Reports {
			kinds[r.Kind]++
			left := a.AppendPayload(nil, i, uint32(n+1), r)
			right := b.AppendPayload(nil, i, uint32(n+1), b.Streams[i].Reports[n])
			if string(left) != string(right) {
				t.Fatalf("%s report %d differs:\n%s\n%s", a.Streams[i].Device, n+1, left, right)
			}
		}
	}
	for kind := ledger.Next; kind <= ledger.Poison; kind++ {
		if kinds[kind] == 0 {
			t.Errorf("no %s report among %v", kind, kinds)
		}
	}
}

// TestSchedule_IsAnOpenLoop: what is due does not depend on what was sent, and the shapes keep their promise.
func TestSchedule_IsAnOpenLoop(t *testing.T) {
	t.Parallel()
	for shape, want := range map[Shape]int{Steady: 12000, Burst: 3000, Diurnal: 7200} {
		s := schedule{shape: shape, rate: 1000, total: 12 * time.Second}
		n := 0
		for _, ok := s.next(); ok; _, ok = s.next() {
			n++
		}
		if n < want*95/100 || n > want*105/100 {
			t.Errorf("%s: %d reports due, want about %d", shape, n, want)
		}
	}
}
