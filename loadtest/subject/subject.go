// Package subject runs the consumer under test: the product's consumer library with its Redis store, handling the
// fleet's events. It measures how long each report took from the moment it was due on the device, and leaves a count in
// Redis of the effects of each stream, made inside the store's script.
package subject

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/loadtest/ledger"
	"github.com/hubstate/hubstate/loadtest/oracle"
)

// slow is the latency above which an event counts as late for Recovered.
const slow = time.Second

// Subject is the consumer under test. Make it with New, run it once.
type Subject struct {
	book   *ledger.Ledger
	redis  *redis.Client
	group  string
	inner  *consumer.Consumer
	warmUp time.Duration

	Handled atomic.Int64 // events that passed the gate

	mu       sync.Mutex
	effects  []oracle.Effect
	last     map[int]oracle.PositionSeen
	reached  []uint32                // the highest report handled of each stream
	total    *hdrhistogram.Histogram // microseconds, after the warm-up
	window   *hdrhistogram.Histogram // since the last Window
	lastSlow time.Time
	lastAt   time.Time
}

// Options says what the subject reads.
type Options struct {
	Brokers []string
	Topic   string
	Group   string // of Kafka, and the name of the store
	Redis   string
	WarmUp  time.Duration // latencies of reports due before it are not counted
	Log     *slog.Logger
}

// New prepares a consumer. A group that has committed no offsets reads the topic from its beginning: see Begin.
func New(book *ledger.Ledger, opts Options) (*Subject, error) {
	parsed, err := redis.ParseURL(opts.Redis)
	if err != nil {
		return nil, fmt.Errorf("consumer under test: %w", err)
	}
	s := &Subject{book: book, redis: redis.NewClient(parsed), group: opts.Group, warmUp: opts.WarmUp, last: map[int]oracle.PositionSeen{}}
	s.reached = make([]uint32, len(book.Streams))
	s.total, s.window = newHistogram(3), newHistogram(2)
	store := consumer.NewRedisStore(consumer.RedisConfig{Client: s.redis, Name: opts.Group, Effects: s.effect})
	s.inner, err = consumer.New(consumer.Config{
		Brokers: opts.Brokers, Topic: opts.Topic, Group: opts.Group, Store: store, Observe: s.observe,
		Start: consumer.StartEarliest, Logger: opts.Log,
	})
	return s, err
}

// newHistogram counts 1 µs to 1 h.
func newHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Hour/time.Microsecond), digits)
}

// Run consumes until ctx ends.
func (s *Subject) Run(ctx context.Context) error { return s.inner.Run(ctx) }

// Close ends the connection to Redis.
func (s *Subject) Close() error { return s.redis.Close() }

// effect is what a business would do once per event: here it counts them, per stream.
func (s *Subject) effect(e *consumer.Effects, d *consumer.Delivery) {
	if i := s.book.Find(d.Event.Device, d.Event.Stream); i >= 0 {
		e.Do("HINCRBY", s.effectsKey(), strconv.Itoa(i), 1)
	}
}

// effectsKey shares the slot of the store's keys.
func (s *Subject) effectsKey() string { return "{" + s.group + "}:effects" }

// observe sees each batch after it was stored.
func (s *Subject) observe(deliveries []*consumer.Delivery) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range deliveries {
		if d.Verdict.Applies() {
			s.takeLocked(now, d)
		}
	}
}

func (s *Subject) takeLocked(now time.Time, d *consumer.Delivery) {
	stream := s.book.Find(d.Event.Device, d.Event.Stream)
	if stream < 0 {
		return
	}
	at := oracle.PositionSeen{Epoch: d.Event.Epoch, Sequence: d.Event.Sequence}
	if d.Rebuild && !above(at, s.last[stream]) {
		return // the store lost what it had and is given it again
	}
	s.last[stream] = at
	number := ledger.NumberIn(d.Event.State)
	s.effects = append(s.effects, oracle.Effect{Stream: stream, Report: number, Epoch: d.Event.Epoch, Sequence: d.Event.Sequence})
	s.reached[stream] = max(s.reached[stream], number)
	s.Handled.Add(1)
	r, ok := s.book.Streams[stream].Report(number)
	if !ok || r.Late {
		return
	}
	s.lastAt = now
	took := now.Sub(s.book.DueAt(r))
	if took > slow {
		s.lastSlow = now
	}
	_ = s.window.RecordValue(took.Microseconds())
	if time.Duration(r.Due) >= s.warmUp {
		_ = s.total.RecordValue(took.Microseconds())
	}
}

func above(p, q oracle.PositionSeen) bool {
	return p.Epoch > q.Epoch || p.Epoch == q.Epoch && p.Sequence > q.Sequence
}

// Latency is a summary of a histogram, in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return Latency{P50: at(50), P95: at(95), P99: at(99)}
}

// Total is the latency of everything after the warm-up.
func (s *Subject) Total() Latency {
	s.mu.Lock()
	defer s.mu.Unlock()
	return latencyOf(s.total)
}

// Window is the latency of what was handled since the last call, and how much that was.
func (s *Subject) Window() (Latency, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, n := latencyOf(s.window), s.window.TotalCount()
	s.window.Reset()
	return l, n
}

// Reached reports whether of each stream the last report that moves its state was handled, or a later one.
func (s *Subject) Reached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, stream := range s.book.Streams {
		if s.reached[i] < stream.LastMove() {
			return false
		}
	}
	return true
}

// LastSlow is when an event was last handled more than a second after it was due; zero if never.
func (s *Subject) LastSlow() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastSlow
}

// LastAt is when a report with a measured latency was last handled.
func (s *Subject) LastAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastAt
}

// Ready reports whether the consumer has partitions.
func (s *Subject) Ready() bool { return len(s.inner.Status().Partitions) > 0 }

// Lag is how many records of the topic it has not handled yet, as far as it knows.
func (s *Subject) Lag() int64 { return s.inner.Status().Lag }

// Begin commits offsets for a group that does not exist yet, so that it begins exactly there.
func Begin(ctx context.Context, brokers []string, topic, group string, at map[int32]int64) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return fmt.Errorf("begin group %s: %w", group, err)
	}
	defer client.Close()
	offsets := kadm.Offsets{}
	for partition, offset := range at {
		offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: -1})
	}
	admin := kadm.NewClient(client)
	for deadline := time.Now().Add(time.Minute); ; {
		err := admin.CommitAllOffsets(ctx, group, offsets)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the group's coordinator is still being chosen
	}
}
