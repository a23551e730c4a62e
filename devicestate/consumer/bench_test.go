package consumer_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/devicestate/consumer/consumertest"
	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
)

// benchBatch is 500 events of as many devices, as a partition sees them at full load.
const benchBatch = 500

func benchmarkStore(b *testing.B, store consumer.Store) {
	records := make([][]byte, benchBatch)
	for i := range records {
		e := consumertest.Event(fmt.Sprintf("device-%05d", i), 1, 1)
		e.State = fmt.Appendf(nil, `{"battery":%d,"position":{"x":1.25,"y":7.5,"theta":0.01},"mode":"AUTOMATIC","load":["pallet-77"],"errors":[]}`, i%100)
		records[i] = e.State
	}
	confirmed := consumer.Unknown
	sequence := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		sequence++
		batch := &consumer.Batch{Topic: "device-state", Next: sequence * benchBatch, Confirmed: confirmed}
		for i := range benchBatch {
			e := consumertest.Event("", 1, sequence)
			e.Device, e.State = fmt.Sprintf("device-%05d", i), records[i]
			batch.Deliveries = append(batch.Deliveries, &consumer.Delivery{Event: e})
		}
		if err := store.Process(context.Background(), batch, nil); err != nil {
			b.Fatal(err)
		}
		confirmed = batch.Confirmed
	}
	b.ReportMetric(float64(b.N)*benchBatch/b.Elapsed().Seconds(), "events/s")
}

// monitorEffects are what the freshness monitor writes: the latest state, and when it was received.
func monitorEffects(fx *consumer.Effects, d *consumer.Delivery) {
	fx.HSet("{bench}:state", d.Event.Device+"/"+d.Event.Stream, d.Event.State)
	fx.ZAdd("{bench}:received:"+d.Event.Hub, float64(d.Event.ReceivedAt.UnixMilli()), d.Event.Device)
}

func BenchmarkPostgresStore(b *testing.B) {
	pool, err := pgxpool.New(b.Context(), testenv.PostgresRaw(b))
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(b.Context(), consumer.PostgresSchema+`; CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY, device text, position text)`); err != nil {
		b.Fatal(err)
	}
	benchmarkStore(b, consumer.NewPostgresStore(pool, "bench", insertEffects))
}

func BenchmarkMemoryStore(b *testing.B) { benchmarkStore(b, consumer.NewMemoryStore()) }

// benchTopicEvents are on the topic before a BenchmarkRun begins.
const benchTopicEvents = 200_000

// BenchmarkRun is the whole way from a real Kafka: fetch, decode, gate, effect, commit. cpu-µs/event is of this process,
// which the goal of 50,000 events/s on one core is about.
func BenchmarkRun(b *testing.B) {
	brokers := testenv.Kafka(b)
	name := testenv.Topic(b, brokers, 16)
	fillBenchTopic(b, brokers, name)
	for store, open := range map[string]func(b *testing.B, n int) consumer.Store{
		"memory": func(*testing.B, int) consumer.Store { return consumer.NewMemoryStore() },
		"redis": func(b *testing.B, n int) consumer.Store {
			opts, err := redis.ParseURL(testenv.Redis(b))
			if err != nil {
				b.Fatal(err)
			}
			return consumer.NewRedisStore(consumer.RedisConfig{Client: redis.NewClient(opts), Name: "bench", Effects: monitorEffects})
		},
		"postgres": func(b *testing.B, n int) consumer.Store {
			pool, err := pgxpool.New(b.Context(), testenv.PostgresRaw(b))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(pool.Close)
			if _, err := pool.Exec(b.Context(), consumer.PostgresSchema+`; CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY, device text, position text)`); err != nil {
				b.Fatal(err)
			}
			return consumer.NewPostgresStore(pool, "bench", insertEffects)
		},
	} {
		b.Run(store, func(b *testing.B) {
			cpu, n := cpuTime(b), 0
			for b.Loop() {
				n++
				runOnce(b, consumer.Config{Brokers: brokers, Topic: name, Group: fmt.Sprintf("bench-%s-%d-%d", store, os.Getpid(), time.Now().UnixNano()), Store: open(b, n)})
			}
			events := float64(n) * benchTopicEvents
			b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/events, "cpu-µs/event")
		})
	}
}

func fillBenchTopic(b *testing.B, brokers []string, name string) {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(name))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	const devices = 20_000
	for n := range benchTopicEvents {
		e := consumertest.Event(fmt.Sprintf("device-%05d", n%devices), 1, int64(n/devices)+1)
		e.State = fmt.Appendf(nil, `{"battery":%d,"position":{"x":1.25,"y":7.5,"theta":0.01},"mode":"AUTOMATIC","load":["pallet-77"],"errors":[]}`, n%100)
		client.Produce(b.Context(), consumertest.Record(name, e), nil)
	}
	if err := client.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func runOnce(b *testing.B, cfg consumer.Config) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var seen atomic.Int64
	cfg.Observe = func(ds []*consumer.Delivery) {
		if seen.Add(int64(len(ds))) >= benchTopicEvents {
			cancel()
		}
	}
	c, err := consumer.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		b.Fatal(err)
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func BenchmarkRedisStore(b *testing.B) {
	server, err := embedded.StartRedis(context.Background(), embedded.RedisOptions{Dir: b.TempDir()})
	if err != nil {
		b.Skip(err)
	}
	defer func() { _ = server.Stop(context.Background()) }()
	benchmarkRedis(b, server.URL())
}

func BenchmarkMiniredisStore(b *testing.B) {
	server, err := embedded.StartMiniredis(context.Background(), 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = server.Stop(context.Background()) }()
	benchmarkRedis(b, server.URL())
}

func benchmarkRedis(b *testing.B, url string) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		b.Fatal(err)
	}
	client := redis.NewClient(opts)
	defer client.Close()
	benchmarkStore(b, consumer.NewRedisStore(consumer.RedisConfig{Client: client, Name: "bench", Effects: monitorEffects}))
}
