package consumer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/devicestate/consumer/consumertest"
	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/redis/go-redis/v9"
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
