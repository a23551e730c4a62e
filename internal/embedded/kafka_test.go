package embedded_test

import (
	"errors"
	"testing"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestKafka_AcknowledgedRecordsSurviveKill(t *testing.T) {
	t.Parallel()
	kafka, err := embedded.StartKafka(t.Context(), embedded.KafkaOptions{Dir: t.TempDir()})
	needs(t, err)
	stopAtEnd(t, kafka.Stop)
	client := newClient(t, kafka.Brokers(), kgo.DefaultProduceTopic("kept"))
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 4, 1, nil, "kept"); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), kgo.StringRecord("a"), kgo.StringRecord("b")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	node := kafka.Node(0)
	if err := errors.Join(node.Kill(), node.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	var records int64
	ends.Each(func(o kadm.ListedOffset) { records += o.Offset })
	if records != 2 {
		t.Fatalf("%d records after the restart, want 2", records)
	}
}

func TestKafka_ThreeNodesFormOneCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three Java servers")
	}
	kafka, err := embedded.StartKafka(t.Context(), embedded.KafkaOptions{Dir: t.TempDir(), Nodes: 3})
	needs(t, err)
	stopAtEnd(t, kafka.Stop)
	admin := kadm.NewClient(newClient(t, kafka.Brokers()))
	if _, err := admin.CreateTopic(t.Context(), 3, 3, nil, "replicated"); err != nil {
		t.Fatal(err)
	}
	if err := kafka.Node(2).Kill(); err != nil {
		t.Fatal(err)
	}
	client := newClient(t, kafka.Brokers()[:2], kgo.DefaultProduceTopic("replicated"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	records := []*kgo.Record{kgo.StringRecord("a"), kgo.StringRecord("b"), kgo.StringRecord("c")}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("with one of three nodes dead: %v", err)
	}
}

func newClient(t *testing.T, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
