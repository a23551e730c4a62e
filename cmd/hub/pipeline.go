package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/hubstate/hubstate/ingest"
	"github.com/hubstate/hubstate/internal/monitor"
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/schema"
	"github.com/hubstate/hubstate/outbox"
	"github.com/hubstate/hubstate/partitions"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// relays is how many share the buckets: two, so that a hand-over can be watched.
const relays = 2

func (h *hub) settings() schema.Settings {
	s := schema.DefaultSettings()
	s.Topic = h.cfg.KafkaTopic
	return s
}

// migrate brings database and topic to what this release needs, like `relay migrate`.
func (h *hub) migrate(ctx context.Context) error {
	if err := schema.Migrate(ctx, h.servers.database.url, h.settings()); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	client, err := kgo.NewClient(h.kafka()...)
	if err != nil {
		return fmt.Errorf("open kafka client: %w", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	facts, err := outbox.EnsureTopic(ctx, client, outbox.TopicSpec{Name: h.settings().Topic, Partitions: h.settings().TopicPartitions})
	if err != nil {
		return err
	}
	for _, warning := range facts.Warnings {
		h.log.Info("topic settings", "note", warning)
	}
	return nil
}

func (h *hub) kafka() []kgo.Opt { return []kgo.Opt{kgo.SeedBrokers(h.servers.brokers...)} }

func (h *hub) startRelays(ctx context.Context) error {
	manager, err := partitions.New(h.maintainer())
	if err != nil {
		return err
	}
	h.launch(ctx, "partition maintainer", manager.Run)
	all := make([]*outbox.Relay, relays)
	for i := range all {
		if all[i], err = h.newRelay("relay-" + strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	h.launch(ctx, "relays", func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for i, relay := range all {
			group.Go(func() error { return relay.Run(ctx) })
			group.Go(func() error { return follow(ctx, h.admin.Condition("relay-"+strconv.Itoa(i+1)), relay.Ready) })
		}
		return group.Wait()
	})
	return nil
}

func (h *hub) newRelay(name string) (*outbox.Relay, error) {
	s := h.settings()
	instance := h.cfg.Instance + "-" + name
	return outbox.New(
		outbox.Config{Instance: instance, Cell: s.Cell, Buckets: s.Buckets, Topic: s.Topic, TopicPartitions: s.TopicPartitions},
		outbox.Deps{
			Connect: func(ctx context.Context) (*pgx.Conn, error) {
				return ops.OpenConn(ctx, h.servers.database.url, "hubstate_relay", "hubstate-"+name, map[string]string{
					"TimeZone": "UTC", "synchronous_commit": "on", "idle_in_transaction_session_timeout": "10s",
				})
			},
			Kafka: h.kafka(), Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"relay": name}, h.reg), Log: h.log,
		})
}

func (h *hub) maintainer() partitions.Config {
	return partitions.Config{
		Spec: partitions.Spec{},
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			return ops.OpenConn(ctx, h.servers.database.url, "hubstate_maintainer", "hubstate-maintainer", nil)
		},
		Drained: func(ctx context.Context, tx pgx.Tx, partition string) (bool, string, error) {
			return outbox.Drained(ctx, tx, partition)
		},
		Barrier: func(ctx context.Context, conn *pgx.Conn) error {
			return outbox.LockBuckets(ctx, conn, h.settings().Buckets)
		},
		SchemaVersion: schema.Latest(), Log: h.log, Registry: h.reg,
	}
}

// follow copies what ready says into a readiness condition.
func follow(ctx context.Context, condition *ops.Condition, ready func() error) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		condition.Set(ready())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (h *hub) startIngester(ctx context.Context) error {
	profiles, err := h.writeProfiles()
	if err != nil {
		return err
	}
	pool, err := ops.OpenPool(ctx, h.servers.database.url, ingest.Role, "hubstate-ingest", ingest.SessionSettings(), 8)
	if err != nil {
		return err
	}
	h.onStop(func(context.Context) error { pool.Close(); return nil })
	cfg := ingest.Config{Instance: h.cfg.Instance, MQTTURL: h.servers.mqtt.url, Hub: h.cfg.Instance, Profiles: profiles}
	service, err := ingest.New(cfg, pool, h.reg, h.log)
	if err != nil {
		return err
	}
	service.OnReady(h.admin.Condition("ingest").Set)
	h.launch(ctx, "ingester", service.Run)
	return nil
}

func (h *hub) startMonitor(ctx context.Context) error {
	pool, err := ops.OpenPool(ctx, h.servers.database.url, "hubstate_reader", "hubstate-monitor",
		map[string]string{"default_transaction_read_only": "on", "statement_timeout": "5s"}, 2)
	if err != nil {
		return err
	}
	h.onStop(func(context.Context) error { pool.Close(); return nil })
	profiles, err := h.writeProfiles()
	if err != nil {
		return err
	}
	cfg := monitor.DefaultConfig()
	cfg.KafkaBrokers, cfg.KafkaTopic = h.servers.brokers, h.cfg.KafkaTopic
	cfg.RedisURL, cfg.DatabaseURL, cfg.Profiles = h.servers.redis.url, h.servers.database.url, profiles
	cfg.PageAddr, cfg.PageToken, cfg.Instance = h.cfg.PageAddr, h.cfg.PageToken, h.cfg.Instance
	service, err := monitor.New(cfg, monitor.Outside{
		Log: h.log, Registerer: h.reg, Database: pool,
		Reading: h.admin.Condition("monitor reading"), Serving: h.admin.Condition("monitor view"),
	})
	if err != nil {
		return err
	}
	if err := service.Listen(); err != nil {
		return err
	}
	h.page = service.Addr()
	h.launch(ctx, "monitor", service.Run)
	return nil
}
