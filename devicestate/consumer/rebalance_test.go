package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/devicestate/consumer/consumertest"
	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/twmb/franz-go/pkg/kgo"
)

// gated lets a handler wait until the test opens it.
type gated struct {
	seen
	entered chan struct{}
	open    chan struct{}
	once    sync.Once
}

func newGated() *gated { return &gated{entered: make(chan struct{}), open: make(chan struct{})} }

func (g *gated) handle(ctx context.Context, ds []*consumer.Delivery) error {
	g.once.Do(func() { close(g.entered) })
	select {
	case <-g.open:
	case <-ctx.Done():
		return ctx.Err()
	}
	return g.seen.handle(ctx, ds)
}

func TestRebalance_RevokedPartitionsRestIsLeftToItsNewOwner(t *testing.T) {
	t.Parallel()
	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 2)
	k.produce(t, k.events(20, 1, 100)...)
	first := newGated()
	cfg := k.config(t, consumer.NewMemoryStore())
	cfg.Handler, cfg.MaxBatch = first.handle, 50
	a, _ := start(t, cfg)
	<-first.entered // a batch is in work, hundreds of records wait behind it

	var second seen
	cfgB := k.config(t, consumer.NewMemoryStore())
	cfgB.Handler = second.handle
	b, _ := start(t, cfgB)
	// The group takes the partition from the first member only when its batch has ended.
	eventually(t, "revocation waiting for the batch", func() bool { return len(a.Status().Partitions) == 1 })
	if n := len(b.Status().Partitions); n != 0 {
		t.Fatalf("the second member owns %d partitions while the first still works on its batch", n)
	}
	close(first.open)
	eventually(t, "all handled", func() bool { return first.total()+second.total() >= 2000 })
	eventually(t, "one partition each", func() bool { return len(a.Status().Partitions) == 1 && len(b.Status().Partitions) == 1 })
	if first.total()+second.total() != 2000 || second.total() == 0 {
		t.Errorf("handled %d and %d, want 2000 in sum, each once, and some by the second", first.total(), second.total())
	}
}

func TestRun_StopEndsTheBatchInWorkAndCommitsIt(t *testing.T) {
	t.Parallel()
	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 1)
	k.produce(t, k.events(1, 1, 500)...)
	g := newGated()
	cfg := k.config(t, consumer.NewMemoryStore())
	cfg.Handler, cfg.MaxBatch = g.handle, 100
	_, stop := start(t, cfg)
	<-g.entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	select {
	case err := <-stopped:
		t.Fatalf("stopped (%v) while a batch was in work", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(g.open)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	before := g.total()
	if before == 0 || before == 500 {
		t.Fatalf("%d handled at the stop, want the batch in work only", before)
	}
	var rest seen
	cfg.Handler, cfg.Store = rest.handle, consumer.NewMemoryStore()
	start(t, cfg)
	eventually(t, "the rest handled", func() bool { return rest.total()+before >= 500 })
	if first := rest.of("device-0")[0].Sequence; first != int64(before)+1 {
		t.Errorf("the next run begins at %d after %d were handled", first, before)
	}
}

func TestRun_DrainTimeoutGivesUpAHangingHandler(t *testing.T) {
	t.Parallel()
	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 1)
	k.produce(t, k.events(1, 1, 10)...)
	g := newGated() // never opened
	cfg := k.config(t, consumer.NewMemoryStore())
	cfg.Handler, cfg.DrainTimeout = g.handle, 100*time.Millisecond
	_, stop := start(t, cfg)
	<-g.entered
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if g.total() != 0 {
		t.Error("handled after all")
	}
}

// TestRun_SlowPartitionIsBoundedAndDelaysNoOther_Backpressure: one partition's handler hangs, the topic keeps growing.
func TestRun_SlowPartitionIsBoundedAndDelaysNoOther_Backpressure(t *testing.T) {
	t.Parallel()
	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 2)
	slow, others := newGated(), seen{}
	cfg := k.config(t, consumer.NewMemoryStore())
	cfg.MaxBatch, cfg.MaxQueued = 50, 200
	cfg.Options = []kgo.Opt{kgo.FetchMaxPartitionBytes(64 << 10)}
	blocked := partitionOf(t, k, "device-0")
	cfg.Handler = func(ctx context.Context, ds []*consumer.Delivery) error {
		if ds[0].Partition == blocked {
			return slow.handle(ctx, ds)
		}
		return others.handle(ctx, ds)
	}
	c, _ := start(t, cfg)
	total, want := 0, 0
	for n := int64(1); n <= 40; n++ {
		records := k.events(100, n, n)
		k.produce(t, records...)
		for _, r := range records {
			total++
			if r.Partition != blocked {
				want++
			}
		}
	}
	eventually(t, "all of the other partition handled", func() bool { return others.total() == want })
	for _, p := range c.Status().Partitions {
		// One fetch of 64 KiB (about 70 records) may be on its way when the partition is paused.
		if p.Partition == blocked && (p.Queued == 0 || p.Queued > 200+300) {
			t.Errorf("%d records of the slow partition in memory, bound 200 and a fetch", p.Queued)
		}
	}
	close(slow.open)
	eventually(t, "the slow partition catching up", func() bool { return slow.total()+others.total() == total })
	eventually(t, "no lag left", func() bool { return c.Status().Lag == 0 })
}

func partitionOf(t *testing.T, k *topic, device string) int32 {
	t.Helper()
	r := k.event(device, 1, 1)
	r.Value = nil // a tombstone: passed over
	k.produce(t, r)
	return r.Partition
}

func TestRun_DeadLetterReachesItsTopic(t *testing.T) {
	t.Parallel()
	brokers := testenv.FakeKafka(t).ListenAddrs()
	k, deadTopic := newTopic(t, brokers, 1), newTopic(t, brokers, 1)
	var got seen
	cfg := k.config(t, consumer.NewMemoryStore())
	cfg.Handler, cfg.Poison = got.handle, consumer.DeadLetterTo(deadTopic.name)
	start(t, cfg)
	k.produce(t, k.event("a", 1, 1), k.event("a", 1, 2, consumertest.Value([]byte("not JSON"))), k.event("a", 1, 3))
	eventually(t, "good records handled", func() bool { return got.total() == 2 })

	reader, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(deadTopic.name))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	records := reader.PollFetches(t.Context()).Records()
	if len(records) != 1 || string(records[0].Value) != "not JSON" || recordHeader(records[0], "hs_reason") != "undecodable" ||
		recordHeader(records[0], "ce_sequence") != fmt.Sprintf("%019d", 2) {
		t.Fatalf("dead-letter topic holds %v", records)
	}
}

func TestRun_PoisonUnderStopEndsRunAndIsMetAgain(t *testing.T) {
	t.Parallel()
	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 1)
	k.produce(t, k.event("a", 1, 1), k.event("a", 1, 2, consumertest.Header("ce_schemaversion", "2")), k.event("a", 1, 3))
	for range 2 {
		cfg := k.config(t, consumer.NewMemoryStore())
		cfg.Handler = func(_ context.Context, ds []*consumer.Delivery) error {
			if ds[len(ds)-1].Event.Sequence > 2 {
				t.Error("handled what stands after the poison")
			}
			return nil
		}
		err := newConsumer(t, cfg).Run(t.Context())
		var poison *consumer.PoisonError
		if !errors.As(err, &poison) || poison.Reason != "unknown_version" || poison.Offset != 1 {
			t.Fatalf("Run returned %v", err)
		}
	}
}

func TestRun_OneAtATime(t *testing.T) {
	t.Parallel()
	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 1)
	c, stop := start(t, k.config(t, consumer.NewMemoryStore()))
	eventually(t, "partition assigned", func() bool { return len(c.Status().Partitions) == 1 })
	if err := c.Run(t.Context()); !errors.Is(err, consumer.ErrRunning) {
		t.Errorf("second Run: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if s := c.Status(); s.Running || len(s.Partitions) != 0 {
		t.Errorf("status after the end: %+v", s)
	}
}

func TestRun_StartLatestSkipsWhatIsThere(t *testing.T) {
	t.Parallel()
	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 1)
	k.produce(t, k.events(1, 1, 10)...)
	var got seen
	cfg := k.config(t, consumer.NewMemoryStore())
	cfg.Handler, cfg.Start = got.handle, consumer.StartLatest
	start(t, cfg)
	n := int64(10)
	eventually(t, "a new record handled", func() bool {
		n++
		k.produce(t, k.events(1, n, n)...)
		return got.total() > 0
	})
	if first := got.of("device-0")[0]; first.Sequence <= 10 {
		t.Errorf("handled %v, which was there before", first)
	}
}

func TestRun_WaitsForItsTopic(t *testing.T) {
	t.Parallel()
	brokers := testenv.FakeKafka(t).ListenAddrs()
	k := newTopic(t, brokers, 1)
	later := *k
	later.name = k.name + "-later"
	var got seen
	cfg := later.config(t, consumer.NewMemoryStore())
	cfg.Handler = got.handle
	start(t, cfg)
	if err := embedded.CreateTopic(t.Context(), brokers, later.name, 1); err != nil {
		t.Fatal(err)
	}
	later.produce(t, later.event("a", 1, 1))
	eventually(t, "its record handled", func() bool { return got.total() == 1 })
}

// TestRun_APauseIsAlwaysLifted: a partition that drains while it is being paused must not stay so for ever.
func TestRun_APauseIsAlwaysLifted(t *testing.T) {
	t.Parallel()
	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 4)
	var got seen
	cfg := k.config(t, consumer.NewMemoryStore())
	cfg.Handler, cfg.MaxBatch, cfg.MaxQueued = got.handle, 1, 1
	// A few records a fetch, so a pause for each; a resumed partition joins the next fetch, which is soon.
	cfg.Options = []kgo.Opt{kgo.FetchMaxPartitionBytes(2 << 10), kgo.FetchMaxWait(20 * time.Millisecond)}
	start(t, cfg)
	total := 0
	for n := int64(1); n <= 100; n++ {
		k.produce(t, k.events(40, n, n)...)
		total += 40
	}
	eventually(t, "all handled", func() bool { return got.total() == total })
}
