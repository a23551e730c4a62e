package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// OnDead says what becomes of a key's later rows when one of its rows is dead.
type OnDead string

// The policies for rows behind a dead one.
const (
	DeadContinue OnDead = "continue" // default: they flow; freshness first
	DeadHold     OnDead = "hold"     // they are parked in outbox_dead until the head is decided
)

// Backlog says what is published of a backlog that is older than BacklogAge.
type Backlog string

// The backlog policies.
const (
	BacklogAll    Backlog = "all"    // default
	BacklogLatest Backlog = "latest" // per stream only the newest row; the rest is superseded
)

// Config is how a Relay works. The zero value of a field means its default.
type Config struct {
	Instance string // name of this relay among those of its cell; required. A suffix per process start is added.

	Cell            string // from the database settings
	Buckets         int    // from the database settings
	Topic           string // from the database settings
	TopicPartitions int    // from the database settings; divides Buckets

	TTL    time.Duration // of the lease; a silent owner is taken over after it; at least 1s; default 6s
	Renew  time.Duration // interval of renewals; at most TTL/3; default TTL/6
	Margin time.Duration // the lease is trusted this much shorter than the database grants it; default TTL/6

	WindowRows  int   // rows per bucket and group, 1..8192; default 512
	GroupBytes  int   // bytes of one produce batch; lowered to the topic's max.message.bytes; default 900000
	MemoryBytes int64 // bytes of rows read and not yet acknowledged; default 48 MiB

	PollMin time.Duration // pause after a sweep that found little; default 5ms
	PollMax time.Duration // pause that empty sweeps back off to while the bell cannot be heard; default 100ms

	// PollIdle is the same while the bell is heard (Bell): how late a row can be whose ring was lost; default 1s, or PollMax
	// when that is longer.
	PollIdle time.Duration

	HandOver time.Duration // how long a released bucket waits for its own acknowledgements; default TTL/2

	OnDead     OnDead
	Backlog    Backlog
	BacklogAge time.Duration // with Backlog latest; default 1m

	// Standby is the application_name of a streaming standby: only what it has flushed is published. Empty = do not wait.
	// Role hubstate_relay needs the rights of pg_read_all_stats.
	Standby string

	RecordsPerSecond int // limit while catching up; 0 = none
	BytesPerSecond   int // limit while catching up; 0 = none

	now func() time.Time // test clock
}

// Deps is what a Relay needs from its process.
type Deps struct {
	Connect func(ctx context.Context) (*pgx.Conn, error) // a new session with the rights of role hubstate_relay
	Kafka   []kgo.Opt                                    // seeds, TLS, SASL, compression; the relay adds the producer's discipline
	Metrics prometheus.Registerer                        // nil = none
	Log     *slog.Logger                                 // nil = discard
}

func (c Config) withDefaults() Config {
	c.TTL = or(c.TTL, 6*time.Second)
	c.Renew = or(c.Renew, c.TTL/6)
	c.Margin = or(c.Margin, c.TTL/6)
	c.WindowRows = or(c.WindowRows, 512)
	c.GroupBytes = or(c.GroupBytes, 900_000)
	c.MemoryBytes = or(c.MemoryBytes, 48<<20)
	c.PollMin = or(c.PollMin, 5*time.Millisecond)
	c.PollMax = or(c.PollMax, 100*time.Millisecond)
	c.PollIdle = or(c.PollIdle, max(time.Second, c.PollMax))
	c.HandOver = or(c.HandOver, c.TTL/2)
	c.OnDead = or(c.OnDead, DeadContinue)
	c.Backlog = or(c.Backlog, BacklogAll)
	c.BacklogAge = or(c.BacklogAge, time.Minute)
	if c.now == nil {
		c.now = time.Now
	}
	return c
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Validate returns all problems joined, each naming field, value and limit.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Instance == "" {
		bad("instance: must not be empty")
	}
	if c.Buckets < 1 || c.TopicPartitions < 1 || c.Buckets%c.TopicPartitions != 0 {
		bad("topic_partitions %d: must divide buckets (%d), so that a bucket lies in one partition", c.TopicPartitions, c.Buckets)
	}
	if c.Topic == "" || c.Cell == "" {
		bad("topic %q and cell %q: must not be empty", c.Topic, c.Cell)
	}
	if c.TTL < time.Second {
		bad("ttl %s: must be at least 1s", c.TTL)
	}
	if c.Renew > c.TTL/3 {
		bad("renew %s: must be at most a third of ttl (%s)", c.Renew, c.TTL)
	}
	if c.Margin <= 0 || c.Margin > c.TTL/2 {
		bad("margin %s: must be above 0 and at most half of ttl (%s)", c.Margin, c.TTL)
	}
	if c.WindowRows < 1 || c.WindowRows > 8192 {
		bad("window_rows %d: must be 1..8192", c.WindowRows)
	}
	if c.GroupBytes < 1024 || c.MemoryBytes < int64(c.GroupBytes) {
		bad("group_bytes %d: must be at least 1024 and at most memory_bytes (%d)", c.GroupBytes, c.MemoryBytes)
	}
	if c.PollMin <= 0 || c.PollMax < c.PollMin {
		bad("poll_min %s: must be above 0 and at most poll_max (%s)", c.PollMin, c.PollMax)
	}
	if c.PollIdle < c.PollMax || c.PollIdle > time.Minute {
		bad("poll_idle %s: must be at least poll_max (%s) and at most 1m", c.PollIdle, c.PollMax)
	}
	if c.OnDead != DeadContinue && c.OnDead != DeadHold {
		bad("on_dead %q: must be continue or hold", c.OnDead)
	}
	if c.Backlog != BacklogAll && c.Backlog != BacklogLatest {
		bad("backlog %q: must be all or latest", c.Backlog)
	}
	if c.RecordsPerSecond < 0 || c.BytesPerSecond < 0 {
		bad("records_per_second %d and bytes_per_second %d: must not be negative", c.RecordsPerSecond, c.BytesPerSecond)
	}
	return errors.Join(errs...)
}
