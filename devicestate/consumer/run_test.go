package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/devicestate/consumer/consumertest"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topic is a topic on a Kafka, real or fake, with a producer that partitions like the relay.
type topic struct {
	name    string
	brokers []string
	client  *kgo.Client
}

func newTopic(t *testing.T, brokers []string, partitions int) *topic {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &topic{name: testenv.Topic(t, brokers, partitions), brokers: brokers, client: client}
}

func (k *topic) produce(t *testing.T, records ...*kgo.Record) {
	t.Helper()
	if err := k.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (k *topic) event(device string, epoch, sequence int64, changes ...func(*kgo.Record)) *kgo.Record {
	return consumertest.Record(k.name, consumertest.Event(device, epoch, sequence), changes...)
}

// events makes one record per device and sequence, sequence by sequence.
func (k *topic) events(devices int, from, to int64) []*kgo.Record {
	var records []*kgo.Record
	for n := from; n <= to; n++ {
		for d := range devices {
			records = append(records, k.event(fmt.Sprintf("device-%d", d), 1, n))
		}
	}
	return records
}

// seen collects what a handler was given.
type seen struct {
	mu     sync.Mutex
	events map[string][]devicestate.Position
	count  int
}

func (s *seen) handle(_ context.Context, ds []*consumer.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events == nil {
		s.events = map[string][]devicestate.Position{}
	}
	for _, d := range ds {
		s.events[d.Event.Device] = append(s.events[d.Event.Device], d.Position())
		s.count++
	}
	return nil
}

func (s *seen) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// of returns what was handled of a device, in order.
func (s *seen) of(device string) []devicestate.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events[device])
}

func (k *topic) config(t *testing.T, store consumer.Store) consumer.Config {
	return consumer.Config{
		Brokers: k.brokers, Topic: k.name, Group: "group-" + k.name, Store: store,
		CommitInterval: 100 * time.Millisecond, Retry: consumer.Retry{MinDelay: 5 * time.Millisecond, MaxDelay: 50 * time.Millisecond},
		Logger: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(string(p))
	}
	return len(p), nil
}

// start runs a consumer and returns a function that stops it and gives Run's error.
func start(t *testing.T, cfg consumer.Config) (*consumer.Consumer, func() error) {
	t.Helper()
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return c, stop
}

// patience is far above what anything takes: only a failure waits for it, and a loaded machine must not be one.
const patience = 2 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func redisClient(t *testing.T) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(testenv.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	opts.ReadTimeout = patience
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestRun_HandlesEachStreamInOrder(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T) consumer.Store{
		"memory": func(*testing.T) consumer.Store { return consumer.NewMemoryStore() },
		"redis": func(t *testing.T) consumer.Store {
			return consumer.NewRedisStore(consumer.RedisConfig{Client: redisClient(t), Name: t.Name()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 8)
			var got seen
			cfg := k.config(t, store(t))
			cfg.Handler = got.handle
			_, stop := start(t, cfg)
			k.produce(t, k.events(20, 1, 50)...)
			k.produce(t, k.events(20, 31, 50)...) // duplicates and older ones
			k.produce(t, k.events(20, 51, 60)...)
			eventually(t, "all events handled", func() bool { return got.total() >= 20*60 })
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			for device, at := range got.events {
				if len(at) != 60 {
					t.Fatalf("%s: %d events handled, want 60", device, len(at))
				}
				for i, p := range at {
					if p.Sequence != int64(i+1) {
						t.Fatalf("%s: event %d is sequence %d", device, i, p.Sequence)
					}
				}
			}
		})
	}
}
