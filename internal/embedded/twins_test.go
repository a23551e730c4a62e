package embedded_test

import (
	"context"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestKfake_KeepsTopicsRecordsAndGroupsOverARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startKfake(t, dir)
	if err := embedded.CreateTopic(t.Context(), first.Brokers(), "kept", 4); err != nil {
		t.Fatal(err)
	}
	producer := newClient(t, first.Brokers(), kgo.DefaultProduceTopic("kept"))
	if err := producer.ProduceSync(t.Context(), kgo.KeyStringRecord("k", "1"), kgo.KeyStringRecord("k", "2")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := consumeOne(t, first.Brokers()); got != "1" {
		t.Fatalf("first record %q", got)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := startKfake(t, dir)
	stopAtEnd(t, second.Stop)
	if got := consumeOne(t, second.Brokers()); got != "2" {
		t.Fatalf("after the restart the group goes on with %q, want 2", got)
	}
	topics, err := kadm.NewClient(newClient(t, second.Brokers())).ListTopics(t.Context(), "kept")
	if err != nil || len(topics["kept"].Partitions) != 4 {
		t.Fatalf("%d partitions after the restart (%v), want 4", len(topics["kept"].Partitions), err)
	}
}

func startKfake(t *testing.T, dir string) *embedded.Kfake {
	t.Helper()
	kafka, err := embedded.StartKfake(t.Context(), embedded.KfakeOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return kafka
}

// consumeOne takes one record as a member of a group, commits it and leaves.
func consumeOne(t *testing.T, brokers []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := newClient(t, brokers, kgo.ConsumerGroup("group"), kgo.ConsumeTopics("kept"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.LeaveGroup()
	records := client.PollRecords(ctx, 1).Records()
	if len(records) == 0 {
		t.Fatal("no record")
	}
	if err := client.CommitRecords(ctx, records...); err != nil {
		t.Fatal(err)
	}
	return string(records[0].Value)
}

func TestMiniredis_ForgetsWithTheClock(t *testing.T) {
	t.Parallel()
	server, err := embedded.StartMiniredis(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, server.Stop)
	opts, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	defer client.Close()
	if err := client.Set(t.Context(), "k", "v", 50*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key expires", func() bool { return client.Exists(t.Context(), "k").Val() == 0 })
}
