package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/devicestate/consumer/consumertest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A program whose effect is in PostgreSQL: it happens once, whatever is killed when.
func Example_postgres() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // holds the tables of consumer.PostgresSchema
	if err != nil {
		slog.Error("connect", "error", err)
		return
	}
	handle := func(ctx context.Context, tx pgx.Tx, deliveries []*consumer.Delivery) error {
		devices, states := make([]string, len(deliveries)), make([]string, len(deliveries))
		for i, d := range deliveries {
			devices[i], states[i] = d.Event.Device, string(d.Event.State)
		}
		_, err := tx.Exec(ctx, `INSERT INTO maintenance_log (device, state) SELECT * FROM unnest($1::text[], $2::jsonb[])`, devices, states)
		return err
	}
	c, err := consumer.New(consumer.Config{
		Brokers: []string{"kafka:9092"},
		Group:   "maintenance",
		Store:   consumer.NewPostgresStore(pool, "maintenance", handle),
		Poison:  consumer.DeadLetterTo("device-state.maintenance.dead"),
		OnHole: func(h consumer.Hole) {
			slog.Warn("events are missing", "device", h.Device, "stream", h.Stream, "from", h.Missing.From, "to", h.Missing.To, "lost", h.Lost)
		},
	})
	if err != nil {
		slog.Error("configure", "error", err)
		return
	}
	if err := c.Run(ctx); err != nil {
		slog.Error("consume", "error", err)
	}
}

// A view in Redis that is written by the script that gates: once, and built again from the topic when Redis was lost.
func Example_redis() {
	client := redis.NewClient(&redis.Options{Addr: "redis:6379"})
	store := consumer.NewRedisStore(consumer.RedisConfig{
		Client: client, Name: "board",
		Effects: func(fx *consumer.Effects, d *consumer.Delivery) {
			fx.HSet("{board}:state:"+d.Event.Hub, d.Event.Device+"/"+d.Event.Stream, d.Event.State)
			if d.Replay == "" { // an old event sent again makes nothing fresh
				fx.ZAdd("{board}:seen:"+d.Event.Hub, float64(d.Event.ReceivedAt.UnixMilli()), d.Event.Device)
			}
		},
	})
	c, err := consumer.New(consumer.Config{Brokers: []string{"kafka:9092"}, Group: "board", Store: store})
	if err != nil {
		slog.Error("configure", "error", err)
		return
	}
	_ = c.Run(context.Background())
}

// A handler that calls a service: at least once. Outages are waited out, refusals are dead letters.
func Example_service() {
	errUnavailable, errRefused := errors.New("unavailable"), errors.New("refused")
	notify := func(context.Context, string) error { return errUnavailable }
	handler := func(ctx context.Context, deliveries []*consumer.Delivery) error {
		for _, d := range deliveries {
			switch err := notify(ctx, d.Event.Device); {
			case errors.Is(err, errUnavailable):
				return consumer.Outage(err)
			case errors.Is(err, errRefused):
				return consumer.Permanent(err)
			case err != nil:
				return err
			}
		}
		return nil
	}
	_, err := consumer.New(consumer.Config{
		Brokers: []string{"kafka:9092"}, Group: "notification", Store: consumer.NewMemoryStore(), Handler: handler,
		Poison: consumer.DeadLetterTo("device-state.notification.dead"),
	})
	fmt.Println(err)
	// Output: <nil>
}

// Feed shows the verdicts without Kafka.
func ExampleConsumer_Feed() {
	c, err := consumer.New(consumer.Config{
		Brokers: []string{"unused:9092"}, Group: "example", Store: consumer.NewMemoryStore(),
		Observe: func(deliveries []*consumer.Delivery) {
			for _, d := range deliveries {
				fmt.Println(d.Event.Sequence, d.Verdict.Outcome, d.Verdict.Lost)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var records []*kgo.Record
	for offset, sequence := range []int64{1, 2, 2, 9, 1} {
		r := consumertest.Record("device-state", consumertest.Event("agv-7", 1, sequence), consumertest.Skipped(map[int64]string{9: "3-7:superseded"}[sequence]))
		r.Offset = int64(offset)
		records = append(records, r)
	}
	if _, err := c.Feed(context.Background(), records...); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1 baseline []
	// 2 apply []
	// 2 duplicate []
	// 9 hole [{8 8}]
	// 1 late []
}
