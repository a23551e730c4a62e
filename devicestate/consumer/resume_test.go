package consumer_test

import (
	"slices"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
)

// TestRun_RetentionPassedTheGroupBy_LossIsCounted_C2: what the group had still to read is gone from the topic.
func TestRun_RetentionPassedTheGroupBy_LossIsCounted_C2(t *testing.T) {
	t.Parallel()
	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 1)
	s := redisStore(redisClient(t))
	cfg := k.config(t, s.Open())
	k.produce(t, k.events(1, 1, 10)...)
	_, stop := start(t, cfg)
	eventually(t, "the first ten applied", func() bool { return s.Position(t, "device-0").Sequence == 10 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.produce(t, k.events(1, 11, 30)...)
	var before kadm.Offsets
	before.Add(kadm.Offset{Topic: k.name, At: 25})
	if _, err := kadm.NewClient(k.client).DeleteRecords(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	cfg.Store, cfg.Registerer = s.Open(), reg
	start(t, cfg)
	eventually(t, "the rest applied", func() bool { return s.Position(t, "device-0").Sequence == 30 })
	eventually(t, "15 events counted as lost", func() bool { return metric(t, reg, "consumer_missing_events_total", "loss") == 15 })
}

// TestRun_StoreAheadOfAShorterTopic: the topic was made again; its records are read from the start and gated.
func TestRun_StoreAheadOfAShorterTopic(t *testing.T) {
	t.Parallel()
	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 1)
	s := redisStore(redisClient(t))
	b := &consumer.Batch{Topic: k.name, Next: 5000, Confirmed: consumer.Unknown, Deliveries: []*consumer.Delivery{
		{Event: devicestate.Event{Device: "device-0", Stream: "state", Epoch: 1, Sequence: 3}}}}
	if err := s.Open().Process(t.Context(), b, nil); err != nil {
		t.Fatal(err)
	}
	k.produce(t, k.events(1, 1, 5)...)
	start(t, k.config(t, s.Open()))
	eventually(t, "all that is new applied", func() bool { return s.Position(t, "device-0").Sequence == 5 })
	if got := s.Effects(t, "device-0"); !slices.Equal(got, dense(5)[2:]) {
		t.Errorf("effects %v, want 3, 4, 5", got)
	}
}

// TestRun_GroupSetBackReadsAgainAndTheGateDropsIt: an operator's way to have everything looked at again.
func TestRun_GroupSetBackReadsAgainAndTheGateDropsIt(t *testing.T) {
	t.Parallel()
	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 1)
	s := redisStore(redisClient(t))
	cfg := k.config(t, s.Open())
	k.produce(t, k.events(1, 1, 10)...)
	_, stop := start(t, cfg)
	eventually(t, "all applied", func() bool { return s.Position(t, "device-0").Sequence == 10 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(k.client)
	committed, err := admin.FetchOffsets(t.Context(), cfg.Group)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := committed.Lookup(k.name, 0); got.At != 10 {
		t.Fatalf("the group has committed offset %d at its stop, want 10", got.At)
	}
	var back kadm.Offsets
	back.Add(kadm.Offset{Topic: k.name, At: 4, LeaderEpoch: -1})
	if err := admin.CommitAllOffsets(t.Context(), cfg.Group, back); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	cfg.Store, cfg.Registerer = s.Open(), reg
	start(t, cfg)
	eventually(t, "six seen again", func() bool {
		return metric(t, reg, "consumer_events_total", "duplicate")+metric(t, reg, "consumer_events_total", "late") == 6
	})
	if got := s.Effects(t, "device-0"); !slices.Equal(got, dense(10)) {
		t.Errorf("effects %v, want 1..10 once", got)
	}
}
