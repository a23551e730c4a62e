package outbox

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// singleCopies makes the test's topic anew with one replica, so that a killed node takes its partitions' leaders along.
func (b *bundle) singleCopies() {
	b.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	b.topic = "single-" + strconv.Itoa(os.Getpid())
	if _, err := kadm.NewClient(client).CreateTopic(b.t.Context(), int32(b.cfg.TopicPartitions), 1, nil, b.topic); err != nil {
		b.t.Fatal(err)
	}
	b.cfg.Topic = b.topic
}

// leaders returns the partitions led by the node.
func (b *bundle) leaders(node int32) map[int32]bool {
	b.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(b.t.Context(), b.topic)
	if err != nil {
		b.t.Fatal(err)
	}
	led := make(map[int32]bool)
	for _, p := range topics[b.topic].Partitions {
		if p.Leader == node {
			led[p.Partition] = true
		}
	}
	return led
}

// arrivals polls the topic and notes when each row was first seen, until stop is closed.
func (b *bundle) arrivals(ctx context.Context) <-chan []delivery {
	out := make(chan []delivery, 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumeTopics(b.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(20*time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	go func() {
		defer client.Close()
		var all []delivery
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { all = append(all, deliveryOf(r)) })
		}
		out <- all
	}()
	return out
}

// p99 of commit → seen, of the deliveries.
func p99(all []delivery, wanted func(delivery) bool) (time.Duration, int) {
	var delays []time.Duration
	for _, d := range all {
		committed, err := time.Parse(time.RFC3339Nano, d.headers[HeaderCommittedAt])
		if err == nil && wanted(d) {
			delays = append(delays, d.seenAt.Sub(committed))
		}
	}
	if len(delays) == 0 {
		return 0, 0
	}
	slices.Sort(delays)
	return delays[len(delays)*99/100], len(delays)
}

func TestRelay_APartitionWithoutLeaderStallsOnlyItsBuckets_O2_O6(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three Kafka nodes")
	}
	kafka := testenv.KafkaCluster(t, 3) // not parallel: the delays of the healthy partitions are measured
	b := setup(t, kafka.Brokers()...)
	b.singleCopies()
	r := b.start()
	eventually(t, "ready", 30*time.Second, func() bool { return r.Ready() == nil && b.owned() == b.cfg.Buckets })
	b.fill(200, 5)
	b.read(60*time.Second, unique(1000))

	// Node 3 is neither the first to be asked for metadata nor, for a quorum of three, needed.
	stalled := b.leaders(3)
	if len(stalled) == 0 {
		t.Fatal("node 3 leads nothing")
	}
	if err := kafka.Node(2).Kill(); err != nil {
		t.Fatal(err)
	}
	killedAt := time.Now()
	watch, stopWatching := context.WithCancel(t.Context())
	seen := b.arrivals(watch)
	stop := b.load(200, 50*time.Millisecond)
	time.Sleep(12 * time.Second) // the outage whose effect on the others is measured
	rows := stop()
	stopWatching()
	during := <-seen

	healthy := func(d delivery) bool {
		return !stalled[Partition(Bucket(d.device, b.cfg.Buckets), b.cfg.TopicPartitions)]
	}
	settled := killedAt.Add(4 * time.Second) // the controller has moved on
	delay, n := p99(during, func(d delivery) bool {
		committed, _ := time.Parse(time.RFC3339Nano, d.headers[HeaderCommittedAt])
		return healthy(d) && committed.After(settled)
	})
	t.Logf("%d partitions without leader; %d rows of the others, p99 %s", len(stalled), n, delay)
	if n < 1000 {
		t.Errorf("only %d rows of healthy partitions arrived", n)
	}
	if limit := 250 * time.Millisecond; delay > limit && os.Getenv("HUBSTATE_TEST_STRICT") != "" || delay > 2*time.Second {
		t.Errorf("p99 of the healthy partitions is %s, want at most %s", delay, limit)
	}
	if err := kafka.Node(2).Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := b.read(90*time.Second, unique(rows))
	checkOrder(t, all, nil)
	if n := b.count(`SELECT count(*) FROM outbox_dead`); n != 0 {
		t.Errorf("%d dead letters from an outage", n)
	}
}
