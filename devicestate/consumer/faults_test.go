package consumer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

const faultDevices = 20

// feedTopic produces rounds until stop is called, which returns the last sequence of every device.
func feedTopic(t *testing.T, k *topic, from int64) (stop func() int64) {
	ctx, cancel := context.WithCancel(t.Context())
	last := make(chan int64, 1)
	go func() {
		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()
		n := from
		for ; ctx.Err() == nil; n++ {
			<-pace.C
			if err := k.client.ProduceSync(context.WithoutCancel(ctx), k.events(faultDevices, n, n)...).FirstErr(); err != nil {
				t.Error(err)
				break
			}
		}
		last <- n - 1
	}()
	return func() int64 { cancel(); return <-last }
}

// dense is 1.1 … 1.last.
func dense(last int64) []devicestate.Position {
	all := make([]devicestate.Position, last)
	for i := range all {
		all[i] = devicestate.Position{Epoch: 1, Sequence: int64(i + 1)}
	}
	return all
}

func TestRedisStore_ServerFaults_NothingLostAndEffectsOnce_C1(t *testing.T) {
	t.Parallel()
	server, err := embedded.StartRedis(t.Context(), embedded.RedisOptions{Dir: t.TempDir()})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	opts, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	opts.ReadTimeout = 300 * time.Millisecond
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })

	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 4)
	reg := prometheus.NewRegistry()
	s := redisStore(client)
	cfg := k.config(t, s.Open())
	cfg.Registerer, cfg.MaxBatch = reg, 50
	_, stop := start(t, cfg)

	producing := feedTopic(t, k, 1)
	for _, fault := range []struct {
		name   string
		inject func() error
	}{
		{"restart", func() error {
			if err := server.Kill(); err != nil {
				return err
			}
			return server.Restart(t.Context())
		}},
		{"flush", func() error { return client.FlushAll(t.Context()).Err() }},
		{"pause", func() error {
			if err := server.Pause(); err != nil {
				return err
			}
			time.Sleep(700 * time.Millisecond) // longer than the client's time-out: it sends its script again
			return server.Resume()
		}},
		{"out of memory", func() error { return outOfMemory(t, client, reg) }},
		{"an older copy", func() error { return restoreOlder(t, client) }},
	} {
		before := len(s.Effects(t, "device-0"))
		if err := fault.inject(); err != nil {
			t.Fatalf("%s: %v", fault.name, err)
		}
		eventually(t, "progress after "+fault.name, func() bool { return len(s.Effects(t, "device-0")) > before+20 })
	}
	last := producing()
	eventually(t, "everything applied", func() bool {
		for d := range faultDevices {
			if int64(len(s.Effects(t, fmt.Sprintf("device-%d", d)))) < last {
				return false
			}
		}
		return true
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for d := range faultDevices {
		if got := s.Effects(t, fmt.Sprintf("device-%d", d)); !slices.Equal(got, dense(last)) {
			t.Fatalf("device-%d: %d effects, not each of 1..%d once and in order", d, len(got), last)
		}
	}
	if lost := metric(t, reg, "consumer_missing_events_total", "loss"); lost != 0 {
		t.Errorf("%v losses counted, none happened", lost)
	}
	for name, atLeast := range map[string]float64{"consumer_store_rewinds_total": 5, "consumer_retries_total": 1} {
		if got := metric(t, reg, name, ""); got < atLeast {
			t.Errorf("%s is %v, want at least %v: the faults are not to be seen", name, got, atLeast)
		}
	}
}

func outOfMemory(t *testing.T, client *redis.Client, reg *prometheus.Registry) error {
	before := metric(t, reg, "consumer_retries_total", "outage")
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		return err
	}
	eventually(t, "the store refusing for want of memory", func() bool {
		return metric(t, reg, "consumer_retries_total", "outage") > before
	})
	return client.ConfigSet(t.Context(), "maxmemory", "0").Err()
}

// restoreOlder puts all keys back to what they were a while ago, in one step, as a lost append-only file does.
func restoreOlder(t *testing.T, client *redis.Client) error {
	restore := dumpRedis(t, client)
	size := client.LLen(t.Context(), "{test}:effects:device-0").Val()
	eventually(t, "progress to be lost", func() bool { return client.LLen(t.Context(), "{test}:effects:device-0").Val() > size+20 })
	return restore()
}

// dumpRedis copies all keys as of one instant and returns what puts exactly them back.
func dumpRedis(t *testing.T, client *redis.Client) (restore func() error) {
	t.Helper()
	ctx := t.Context()
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	dump := client.TxPipeline()
	copies := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		copies[i] = dump.Dump(ctx, key)
	}
	if _, err := dump.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	return func() error {
		pipe := client.TxPipeline()
		pipe.FlushDB(ctx)
		for i, key := range keys {
			pipe.Restore(ctx, key, 0, copies[i].Val())
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}

// metric sums the series of a family that carry the label value ("" = all).
func metric(t *testing.T, reg prometheus.Gatherer, family, value string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != family {
			continue
		}
		for _, m := range f.GetMetric() {
			if value == "" || len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == value {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func TestPostgresStore_ServerRestarts_NothingLostAndEffectsOnce_C1(t *testing.T) {
	t.Parallel()
	server, err := embedded.StartPostgres(t.Context(), embedded.PostgresOptions{DataDir: postgresDir(t)})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	prepareTables(t, pool)

	k := newTopic(t, testenv.FakeKafka(t).ListenAddrs(), 4)
	cfg := k.config(t, consumer.NewPostgresStore(pool, "test", insertEffects))
	cfg.MaxBatch = 50
	_, stop := start(t, cfg)
	producing := feedTopic(t, k, 1)
	for range 2 {
		before := effectCount(pool)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		// The crashed server's backends hold its shared memory a moment longer.
		eventually(t, "start after a crash", func() bool { return server.Restart(t.Context()) == nil })
		eventually(t, "progress after a crash", func() bool { return effectCount(pool) > before+200 })
	}
	last := producing()
	eventually(t, "everything applied", func() bool { return effectCount(pool) >= int(last)*faultDevices })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for d := range faultDevices {
		if got := effectsOf(t, pool, fmt.Sprintf("device-%d", d)); !slices.Equal(got, dense(last)) {
			t.Fatalf("device-%d: %d effects, not each of 1..%d once and in order", d, len(got), last)
		}
	}
}

// effectCount is 0 while the server is away.
func effectCount(pool *pgxpool.Pool) (n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = pool.QueryRow(ctx, `SELECT count(*) FROM effect`).Scan(&n)
	return n
}

// postgresDir can be reached by the user that PostgreSQL runs as.
func postgresDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "consumer-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "data")
}
