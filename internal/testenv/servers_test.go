package testenv_test

import (
	"errors"
	"net"
	"net/url"
	"testing"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestKafka_TopicsOfTestsHaveTheInstalledSettings(t *testing.T) {
	t.Parallel()
	brokers := testenv.Kafka(t)
	topic := testenv.Topic(t, brokers, 8)
	checkTopic(t, brokers, topic, 8)
}

func TestFakeKafka_TakesTheSameTopicSettings(t *testing.T) {
	t.Parallel()
	brokers := testenv.FakeKafka(t).ListenAddrs()
	checkTopic(t, brokers, testenv.Topic(t, brokers, 4), 4)
}

func checkTopic(t *testing.T, brokers []string, topic string, partitions int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	details, err := admin.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(details[topic].Partitions); got != partitions {
		t.Errorf("%d partitions, want %d", got, partitions)
	}
	configs, err := admin.DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range configs[0].Configs {
		if config.Key == "max.message.bytes" && config.MaybeValue() != "1048588" {
			t.Errorf("max.message.bytes = %s", config.MaybeValue())
		}
	}
}

func TestMQTT_Answers(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(testenv.MQTT(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestRedis_EachTestHasKeysOfItsOwn(t *testing.T) {
	t.Parallel()
	first, second := redisClient(t), redisClient(t)
	if err := first.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := second.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Fatalf("the neighbour's key is visible (%v)", err)
	}
}

func redisClient(t *testing.T) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(testenv.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
