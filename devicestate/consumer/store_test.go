package consumer_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/devicestate/consumer/consumertest"
	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

func TestMemoryStore(t *testing.T) {
	t.Parallel()
	consumertest.TestStore(t, func(t *testing.T) consumertest.Store {
		store := consumer.NewMemoryStore()
		return consumertest.Store{
			Volatile: true,
			Open:     func() consumer.Store { return store },
			Position: func(_ *testing.T, device string) devicestate.Position { return store.Position(device, "state") },
		}
	})
}

func TestRedisStore(t *testing.T) {
	t.Parallel()
	t.Run("redis-server", func(t *testing.T) {
		t.Parallel()
		consumertest.TestStore(t, func(t *testing.T) consumertest.Store { return redisStore(redisClient(t)) })
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		consumertest.TestStore(t, func(t *testing.T) consumertest.Store {
			server, err := embedded.StartMiniredis(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Stop(context.Background()) })
			opts, err := redis.ParseURL(server.URL())
			if err != nil {
				t.Fatal(err)
			}
			opts.ReadTimeout = patience
			s := redisStore(redis.NewClient(opts))
			s.Snapshot = nil // it cannot DUMP a hash
			return s
		})
	})
}

func redisStore(client *redis.Client) consumertest.Store {
	effects := func(device string) string { return "{test}:effects:" + device }
	open := func() *consumer.RedisStore {
		return consumer.NewRedisStore(consumer.RedisConfig{Client: client, Name: "test", HoleLimit: 100,
			Effects: func(fx *consumer.Effects, d *consumer.Delivery) {
				fx.Do("RPUSH", effects(d.Event.Device), fmt.Sprintf("%d.%d", d.Event.Epoch, d.Event.Sequence))
			}})
	}
	return consumertest.Store{
		Open: func() consumer.Store { return open() },
		Effects: func(t *testing.T, device string) []devicestate.Position {
			return positions(t, client.LRange(t.Context(), effects(device), 0, -1).Val())
		},
		Position: func(t *testing.T, device string) devicestate.Position {
			p, err := open().Position(t.Context(), device, "state")
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		Forget: func(t *testing.T) {
			if err := client.FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		},
		Snapshot: func(t *testing.T) func(*testing.T) {
			restore := dumpRedis(t, client)
			return func(t *testing.T) {
				if err := restore(); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
}

func positions(t *testing.T, texts []string) []devicestate.Position {
	var all []devicestate.Position
	for _, text := range texts {
		var p devicestate.Position
		if _, err := fmt.Sscanf(text, "%d.%d", &p.Epoch, &p.Sequence); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func TestPostgresStore(t *testing.T) {
	t.Parallel()
	pool := postgresSchemas(t)
	consumertest.TestStore(t, func(t *testing.T) consumertest.Store { return postgresStore(pool(t)) })
}

// postgresSchemas makes one database; each call of the result is a schema in it, with the store's tables and one for
// effects: a hundred times faster than a database each.
func postgresSchemas(t *testing.T) func(t *testing.T) *pgxpool.Pool {
	t.Helper()
	url := testenv.PostgresRaw(t)
	var last atomic.Int64
	return func(t *testing.T) *pgxpool.Pool {
		t.Helper()
		cfg, err := pgxpool.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		schema := fmt.Sprintf("test_%d", last.Add(1))
		cfg.ConnConfig.RuntimeParams["search_path"] = schema
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		if _, err := pool.Exec(t.Context(), `CREATE SCHEMA `+schema); err != nil {
			t.Fatal(err)
		}
		prepareTables(t, pool)
		return pool
	}
}

func postgresPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return postgresSchemas(t)(t)
}

func prepareTables(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range 2 { // safe to repeat
		if _, err := pool.Exec(t.Context(), consumer.PostgresSchema); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), `CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY, device text, position text)`); err != nil {
		t.Fatal(err)
	}
}

func insertEffects(ctx context.Context, tx pgx.Tx, ds []*consumer.Delivery) error {
	devices, at := make([]string, len(ds)), make([]string, len(ds))
	for i, d := range ds {
		devices[i], at[i] = d.Event.Device, fmt.Sprintf("%d.%d", d.Event.Epoch, d.Event.Sequence)
	}
	_, err := tx.Exec(ctx, `INSERT INTO effect (device, position) SELECT * FROM unnest($1::text[], $2::text[])`, devices, at)
	return err
}

func effectsOf(t *testing.T, pool *pgxpool.Pool, device string) []devicestate.Position {
	t.Helper()
	var text string
	if err := pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(position, ' ' ORDER BY id), '') FROM effect WHERE device = $1`, device).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return positions(t, strings.Fields(text))
}

func postgresStore(pool *pgxpool.Pool) consumertest.Store {
	open := func() *consumer.PostgresStore { return consumer.NewPostgresStore(pool, "test", insertEffects) }
	return consumertest.Store{
		Open:    func() consumer.Store { return open() },
		Effects: func(t *testing.T, device string) []devicestate.Position { return effectsOf(t, pool, device) },
		Position: func(t *testing.T, device string) devicestate.Position {
			p, err := open().Position(t.Context(), device, "state")
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		Forget: func(t *testing.T) {
			if _, err := pool.Exec(t.Context(), `TRUNCATE consumer_position, consumer_offset`); err != nil {
				t.Fatal(err)
			}
		},
		Snapshot: func(t *testing.T) func(*testing.T) {
			exec := func(t *testing.T, sql string) {
				t.Helper()
				if _, err := pool.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			for _, table := range []string{"consumer_position", "consumer_offset", "effect"} {
				exec(t, `CREATE TABLE copy_of_`+table+` AS TABLE `+table)
			}
			return func(t *testing.T) {
				exec(t, `TRUNCATE consumer_position, consumer_offset, effect;
					INSERT INTO consumer_position TABLE copy_of_consumer_position;
					INSERT INTO consumer_offset TABLE copy_of_consumer_offset;
					INSERT INTO effect OVERRIDING SYSTEM VALUE TABLE copy_of_effect`)
			}
		},
	}
}
