package consumer_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/internal/faultnet"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// loseAnswers lets every second script happen and loses its answer.
type loseAnswers struct{ scripts atomic.Int64 }

func (h *loseAnswers) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *loseAnswers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *loseAnswers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") && h.scripts.Add(1)%2 == 1 {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

// TestRedisStore_LostAnswer_VerdictsAreThoseOfTheFirstTime: the batch was applied, the consumer asks again. Its events must
// neither be applied twice nor be taken for duplicates: their holes would never be told.
func TestRedisStore_LostAnswer_VerdictsAreThoseOfTheFirstTime(t *testing.T) {
	t.Parallel()
	client := redisClient(t)
	client.AddHook(&loseAnswers{})
	s := redisStore(client)
	cfg := feedConfig()
	reg := prometheus.NewRegistry()
	cfg.Store, cfg.Registerer, cfg.MaxBatch = s.Open(), reg, 2
	var holes []consumer.Hole
	cfg.OnHole = func(h consumer.Hole) { holes = append(holes, h) }
	c := newConsumer(t, cfg)
	if _, err := c.Feed(t.Context(), offsets(feedEvent("a", 1), feedEvent("a", 2), feedEvent("a", 5), feedEvent("b", 1), feedEvent("a", 6), feedEvent("a", 6))...); err != nil {
		t.Fatal(err)
	}
	for verdict, want := range map[string]float64{"baseline": 2, "apply": 2, "hole": 1, "duplicate": 1, "late": 0} {
		if got := metric(t, reg, "consumer_events_total", verdict); got != want {
			t.Errorf("%v events with verdict %s, want %v", got, verdict, want)
		}
	}
	if retries := metric(t, reg, "consumer_retries_total", "outage"); retries != 3 {
		t.Errorf("%v retries, want one a batch: no answer was lost", retries)
	}
	want := []devicestate.Position{{Epoch: 1, Sequence: 1}, {Epoch: 1, Sequence: 2}, {Epoch: 1, Sequence: 5}, {Epoch: 1, Sequence: 6}}
	if got := s.Effects(t, "a"); !slices.Equal(got, want) {
		t.Errorf("effects %v, want %v", got, want)
	}
	if len(holes) != 1 || fmt.Sprint(holes[0].Lost) != "[{3 4}]" {
		t.Errorf("holes told: %+v", holes)
	}
}

// TestPostgresStore_LostCommitAnswer_VerdictsAreThoseOfTheFirstTime cuts the connection while COMMIT is at work.
func TestPostgresStore_LostCommitAnswer_VerdictsAreThoseOfTheFirstTime(t *testing.T) {
	t.Parallel()
	direct, err := pgxpool.New(t.Context(), testenv.PostgresRaw(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(direct.Close)
	prepareTables(t, direct)
	// The first COMMIT takes its time: long enough to be seen at it.
	if _, err := direct.Exec(t.Context(), `
		CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.position = '1.7')
		EXECUTE FUNCTION slow_commit()`); err != nil {
		t.Fatal(err)
	}
	proxy, pool := proxied(t, direct)
	cfg := feedConfig()
	reg := prometheus.NewRegistry()
	cfg.Store, cfg.Registerer = consumer.NewPostgresStore(pool, "test", insertEffects), reg
	c := newConsumer(t, cfg)
	if _, err := c.Feed(t.Context(), offsets(feedEvent("a", 1))...); err != nil {
		t.Fatal(err)
	}
	go func() {
		eventually(t, "the commit at work", func() bool {
			var n int
			_ = direct.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()`).Scan(&n)
			return n > 0
		})
		// The answer is held back, not the connection cut: a server that notices a lost client would roll back.
		proxy.Mute(faultnet.Down)
		eventually(t, "the commit done", func() bool { return effectCount(direct) == 3 })
		proxy.Reset()
		proxy.Heal()
	}()
	second := offsets(feedEvent("x", 1), feedEvent("a", 7), feedEvent("b", 1))[1:]
	if _, err := c.Feed(t.Context(), second...); err != nil {
		t.Fatal(err)
	}
	if retries := metric(t, reg, "consumer_retries_total", "outage"); retries == 0 {
		t.Error("no retry: no answer was lost")
	}
	for verdict, want := range map[string]float64{"baseline": 2, "hole": 1, "duplicate": 0, "late": 0} {
		if got := metric(t, reg, "consumer_events_total", verdict); got != want {
			t.Errorf("%v events with verdict %s, want %v", got, verdict, want)
		}
	}
	if got := fmt.Sprint(effectsOf(t, direct, "a")); got != "[{1 1} {1 7}]" {
		t.Errorf("effects %s", got)
	}
}

// proxied is a pool on the same database, by way of a link that can be broken.
func proxied(t *testing.T, direct *pgxpool.Pool) (*faultnet.Proxy, *pgxpool.Pool) {
	t.Helper()
	cfg := direct.Config()
	proxy, err := faultnet.New(t.Context(), net.JoinHostPort(cfg.ConnConfig.Host, fmt.Sprint(cfg.ConnConfig.Port)))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(cfg.ConnString())
	if err != nil {
		t.Fatal(err)
	}
	u.Host = proxy.Addr()
	pool, err := pgxpool.New(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return proxy, pool
}
