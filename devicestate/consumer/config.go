package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config says what is consumed and what is done with it. It is copied by New.
type Config struct {
	// Brokers are the seed brokers, host:port. Required unless Options holds kgo.SeedBrokers.
	Brokers []string

	// Options are added to the Kafka client: TLS, SASL, client id, rack, an instance id, a dialer. The consumer sets the
	// group, topics, balancer (cooperative sticky), commits and rebalance callbacks itself.
	Options []kgo.Opt

	// Topic is read by all members of Group. Default: device-state.
	Topic string

	// Group is the Kafka consumer group. Required.
	Group string

	// Store keeps the positions. Required.
	Store Store

	// Handler handles what passes the gate, at least once. Optional when the store carries the effect (see package doc).
	Handler Handler

	// Observe sees the deliveries of each batch with their verdicts, dropped ones too, after the batch is stored: at most
	// once, concurrently for different partitions, on the consumer's path (be quick). Do not keep the slice. Optional.
	Observe func([]*Delivery)

	// OnHole is told every hole, explained or not, under the same terms as Observe. Optional.
	OnHole func(Hole)

	// Start says where a partition begins for which neither the group nor the store knows an offset. Default: StartEarliest.
	Start Start

	// Compacted declares the topic compacted. When false the broker is asked for the topic's cleanup.policy at start.
	Compacted bool

	// Poison says what becomes of a record nobody can handle. Default: Stop.
	Poison PoisonPolicy

	// Retry bounds the retries of a failing handler.
	Retry Retry

	// MaxBatch is the most records handled in one go, 1..5000. Default: 500.
	MaxBatch int

	// MaxQueued is how many records of one partition wait in memory before it is paused; one fetch more may be on its way
	// (kgo.FetchMaxPartitionBytes, 1 MiB by default). Default: 4 × MaxBatch.
	MaxQueued int

	// Concurrency is how many batches, of different partitions, are in work at once. Default: 2 × GOMAXPROCS, at least 4.
	Concurrency int

	// CommitInterval is how often offsets are committed to Kafka; a longer one only repeats more after a crash. Default: 1 s.
	CommitInterval time.Duration

	// DrainTimeout bounds how long a batch in work may take to end when its partition is revoked or Run stops; then its
	// context is cancelled. Must stay below the group's rebalance timeout (60 s). Default: 10 s.
	DrainTimeout time.Duration

	// Logger. Default: slog.Default().
	Logger *slog.Logger

	// Registerer gets the consumer's metrics, all prefixed consumer_. Two consumers of one process need two, for example
	// prometheus.WrapRegistererWith(prometheus.Labels{"group": …}, reg). Default: none.
	Registerer prometheus.Registerer
}

// Handler handles deliveries of one partition, in order; all of them passed the gate. It is called concurrently for
// different partitions. nil means all are handled; an error means the batch is tried again, so it must tolerate
// repetition. The deliveries and what they point to must not be kept after it returned, except that Event.State and
// Value may be kept as long as they are not changed.
type Handler func(ctx context.Context, deliveries []*Delivery) error

// Start says where to begin when nothing is known.
type Start uint8

// The starts.
const (
	StartEarliest Start = iota // with the oldest record the topic still has
	StartLatest                // with the next record to come
)

// Retry bounds the retries of a failing handler. Outages (of the store, of Kafka, or wrapped by Outage) are retried with
// the same delays and without end.
type Retry struct {
	// MinDelay is the first delay; each next is twice as long, with jitter. Default: 100 ms.
	MinDelay time.Duration
	// MaxDelay is the longest delay. Default: 30 s.
	MaxDelay time.Duration
	// MaxAttempts is how often a batch is handed to the handler before its events are tried alone, and how often an event
	// alone before Config.Poison decides. At least 1. Default: 5.
	MaxAttempts int
}

// Defaults of Config.
const (
	DefaultTopic          = "device-state"
	DefaultMaxBatch       = 500
	DefaultCommitInterval = time.Second
	DefaultDrainTimeout   = 10 * time.Second
)

// maxBatchLimit keeps one Redis script below a few tens of milliseconds.
const maxBatchLimit = 5000

func (c Config) withDefaults() Config {
	c.Topic = orDefault(c.Topic, DefaultTopic)
	c.Retry.MinDelay = orDefault(c.Retry.MinDelay, 100*time.Millisecond)
	c.Retry.MaxDelay = orDefault(c.Retry.MaxDelay, 30*time.Second)
	c.Retry.MaxAttempts = orDefault(c.Retry.MaxAttempts, 5)
	c.MaxBatch = orDefault(c.MaxBatch, DefaultMaxBatch)
	c.MaxQueued = orDefault(c.MaxQueued, 4*c.MaxBatch)
	c.Concurrency = orDefault(c.Concurrency, max(4, 2*runtime.GOMAXPROCS(0)))
	c.CommitInterval = orDefault(c.CommitInterval, DefaultCommitInterval)
	c.DrainTimeout = orDefault(c.DrainTimeout, DefaultDrainTimeout)
	c.Logger = orDefault(c.Logger, slog.Default())
	return c
}

func orDefault[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}

// validate returns all problems of a Config with defaults, joined.
func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("consumer config: "+format, args...))
		}
	}
	check(len(c.Brokers)+len(c.Options) > 0, "Brokers is required")
	check(c.Group != "", "Group is required")
	check(c.Store != nil, "Store is required")
	check(c.MaxBatch >= 1 && c.MaxBatch <= maxBatchLimit, "MaxBatch is %d, must be 1..%d", c.MaxBatch, maxBatchLimit)
	check(c.MaxQueued >= c.MaxBatch, "MaxQueued is %d, must be at least MaxBatch (%d)", c.MaxQueued, c.MaxBatch)
	check(c.Concurrency >= 1, "Concurrency is %d, must be at least 1", c.Concurrency)
	check(c.Retry.MinDelay > 0 && c.Retry.MaxDelay >= c.Retry.MinDelay, "Retry delays are %v..%v, must be positive and in order", c.Retry.MinDelay, c.Retry.MaxDelay)
	check(c.Retry.MaxAttempts >= 1, "Retry.MaxAttempts is %d, must be at least 1", c.Retry.MaxAttempts)
	check(c.CommitInterval >= 100*time.Millisecond, "CommitInterval is %v, must be at least 100 ms", c.CommitInterval)
	check(c.DrainTimeout > 0 && c.DrainTimeout <= 45*time.Second, "DrainTimeout is %v, must be above 0 and at most 45 s", c.DrainTimeout)
	check(c.Start <= StartLatest, "Start is %d, must be StartEarliest or StartLatest", c.Start)
	check(c.Poison.topic != c.Topic, "Poison: the dead-letter topic must not be the topic itself (%s)", c.Topic)
	return errors.Join(errs...)
}
