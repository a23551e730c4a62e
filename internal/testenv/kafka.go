package testenv

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka returns the brokers of a real Kafka, shared by the tests of this binary. Topics are not made by themselves:
// see Topic.
func Kafka(t testing.TB) []string {
	t.Helper()
	brokers, err := theKafka()
	if err != nil {
		missing(t, fmt.Errorf("Kafka for tests: %w", err))
	}
	return brokers
}

// KafkaCluster starts a real Kafka cluster of this test's own, stopped when the test ends: its nodes may be killed,
// paused and restarted. Three nodes take about 10 s and 900 MB.
func KafkaCluster(t testing.TB, nodes int) *embedded.Kafka {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	kafka, err := embedded.StartKafka(ctx, embedded.KafkaOptions{Dir: t.TempDir(), Nodes: nodes})
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(func() {
		for i := range kafka.Nodes() {
			// A test's cluster has nothing to save; nodes that stop in order wait for a quorum that is going away.
			if err := kafka.Node(i).Kill(); err != nil {
				t.Errorf("kill Kafka node: %v", err)
			}
		}
		if err := kafka.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop Kafka: %v", err)
		}
	})
	return kafka
}

// FakeKafka starts an in-process Kafka of this test's own with one broker and no topics; opts go over that. Faults are
// injected with its Fault and ControlKey methods. It has no replication and keeps its records in memory.
func FakeKafka(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatalf("start fake Kafka: %v", err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// Topic makes a topic of this test's own with the settings of deploy/kafka/topic.properties; it is deleted at the end.
func Topic(t testing.TB, brokers []string, partitions int) string {
	t.Helper()
	name := fmt.Sprintf("device-state-%d-%d", os.Getpid(), topics().Add(1))
	if err := embedded.CreateTopic(t.Context(), brokers, name, partitions); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteTopic(context.WithoutCancel(t.Context()), brokers, name) })
	return name
}

// topics counts the topics of this test binary, whose names must differ.
var topics = sync.OnceValue(func() *atomic.Int64 { return new(atomic.Int64) })

// deleteTopic is best effort: the test may have killed the brokers, and a shared Kafka of this binary ends with it.
func deleteTopic(ctx context.Context, brokers []string, name string) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = kadm.NewClient(client).DeleteTopic(ctx, name)
}

var theKafka = sync.OnceValues(func() ([]string, error) {
	if brokers := os.Getenv("HUBSTATE_TEST_KAFKA_BROKERS"); brokers != "" {
		took("Kafka", "HUBSTATE_TEST_KAFKA_BROKERS")
		return strings.Split(brokers, ","), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if dockerAnswers() {
		addr, err := dockerKafka(ctx)
		return []string{addr}, err
	}
	dir, err := theEnvironment().subdir("kafka")
	if err != nil {
		return nil, err
	}
	kafka, err := embedded.StartKafka(ctx, embedded.KafkaOptions{Dir: dir})
	if err != nil {
		return nil, err
	}
	theEnvironment().onStop(kafka.Stop)
	took("Kafka", "version "+embedded.KafkaVersion+" of this machine")
	return kafka.Brokers(), nil
})
