package partitions

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// pipeline is writers and relays, the product's own, on one database and topic.
type pipeline struct {
	f       *fixture
	brokers []string
	topic   string
	stop    context.CancelFunc
	group   *errgroup.Group
	written int64
}

// startRelays runs two relays until the test ends or stopRelays.
func (f *fixture) startRelays(brokers []string) *pipeline {
	f.Helper()
	settings := testenv.Settings()
	p := &pipeline{f: f, brokers: brokers, topic: testenv.Topic(f, brokers, settings.TopicPartitions)}
	ctx, stop := context.WithCancel(f.Context())
	p.group, ctx = errgroup.WithContext(ctx)
	p.stop = stop
	for i := range 2 {
		relay, err := outbox.New(outbox.Config{
			Instance: fmt.Sprint("relay-", i), Cell: settings.Cell, Buckets: testBuckets, Topic: p.topic, TopicPartitions: settings.TopicPartitions,
		}, outbox.Deps{
			Connect: func(ctx context.Context) (*pgx.Conn, error) { return dial(ctx, f.url, "hubstate_relay", "relay") },
			Kafka:   []kgo.Opt{kgo.SeedBrokers(brokers...)}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			f.Fatal(err)
		}
		p.group.Go(func() error { return relay.Run(ctx) })
	}
	f.eventually("the relays own all buckets", func() bool {
		return f.query(`SELECT count(*) FROM outbox_bucket WHERE owner IS NOT NULL`) == testBuckets
	})
	return p
}

func (p *pipeline) stopRelays() {
	p.f.Helper()
	p.stop()
	if err := p.group.Wait(); err != nil {
		p.f.Error(err)
	}
}

// timings are the durations of something done over and over.
type timings struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *timings) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, d)
}

func (t *timings) quantile(q float64) time.Duration { return quantile(t.all, q) }

func quantile(durations []time.Duration, q float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[int(q*float64(len(sorted)-1))]
}

// load is two writers and a probe that asks what a relay's poll asks.
type load struct {
	p       *pipeline
	stop    context.CancelFunc
	group   *errgroup.Group
	counts  [2]int64
	commits timings
	polls   timings
}

func (p *pipeline) startLoad(sequences [2]map[string]int64) *load {
	ctx, stop := context.WithCancel(p.f.Context())
	l := &load{p: p, stop: stop, group: &errgroup.Group{}}
	for w := range 2 {
		conn := p.f.connect("hubstate_ingest")
		l.group.Go(func() error { return l.write(ctx, conn, w, sequences[w]) })
	}
	conn := p.f.connect("hubstate_relay")
	l.group.Go(func() error { return l.poll(ctx, conn) })
	return l
}

// write appends batches of 20 events of this writer's devices, each device's sequence dense.
func (l *load) write(ctx context.Context, conn *pgx.Conn, writer int, next map[string]int64) error {
	for batch := 0; ctx.Err() == nil; batch++ {
		messages := make([]*outbox.Message, 20)
		for i := range messages {
			device := fmt.Sprintf("device-%d-%d", writer, (batch*7+i*3)%500)
			messages[i] = message(device, next[device])
			next[device]++
		}
		start := time.Now()
		if err := appendMessages(context.WithoutCancel(ctx), conn, testBuckets, messages); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		l.commits.add(time.Since(start))
		l.counts[writer] += int64(len(messages))
		_ = sleep(ctx, 2*time.Millisecond)
	}
	return nil
}

func (l *load) poll(ctx context.Context, conn *pgx.Conn) error {
	for ctx.Err() == nil {
		start := time.Now()
		_, err := conn.Exec(context.WithoutCancel(ctx), `SELECT b.bucket, r.position FROM outbox_bucket b,
			LATERAL (SELECT position FROM outbox WHERE bucket = b.bucket AND position > b.cursor ORDER BY position LIMIT 200) r`)
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		l.polls.add(time.Since(start))
		_ = sleep(ctx, 10*time.Millisecond)
	}
	return nil
}

// end stops writers and probe; everything written is counted on the pipeline.
func (l *load) end() {
	l.p.f.Helper()
	l.stop()
	if err := l.group.Wait(); err != nil {
		l.p.f.Fatal(err)
	}
	l.p.written += l.counts[0] + l.counts[1]
}

// checkTopic reads the whole topic: each event is there, and the first deliveries of each device are dense and in order.
func (p *pipeline) checkTopic(sequences [2]map[string]int64) {
	p.f.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(p.brokers...), kgo.ConsumeTopics(p.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		p.f.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(p.f.Context(), time.Minute)
	defer cancel()
	last := map[string]int64{}
	seen, repeated, overtaken := int64(0), 0, 0
	for seen < p.written && ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			device, sequence := string(r.Key), sequenceOf(p.f, r)
			switch {
			case sequence == last[device]+1:
				last[device] = sequence
				seen++
			case sequence <= last[device]:
				repeated++
			default:
				overtaken++
			}
		})
	}
	if seen != p.written || overtaken > 0 {
		p.f.Errorf("%d events written, %d first deliveries in order on the topic, %d out of order, %d repeated", p.written, seen, overtaken, repeated)
	}
	for _, next := range sequences {
		for device, n := range next {
			if last[device] != n {
				p.f.Fatalf("%s: %d events written, the topic ends at %d", device, n, last[device])
			}
		}
	}
}

func sequenceOf(t testing.TB, r *kgo.Record) int64 {
	for _, h := range r.Headers {
		if h.Key == "ce_sequence" {
			var n int64
			if _, err := fmt.Sscanf(string(h.Value), "%d", &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("a record without ce_sequence")
	return 0
}
