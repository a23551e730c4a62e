package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/hubstate/hubstate/internal/monitor"
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/schema"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Read the topic into the view and serve the page, until stopped",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd.Flags())
			if err != nil {
				return err
			}
			log, err := ops.NewLogger(cmd.ErrOrStderr(), cfg.LogLevel, cfg.LogFormat)
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg, log.With("instance", cfg.Instance))
		},
	}
	cfg := defaultConfig()
	ops.AddFlags(cmd.Flags(), &cfg)
	return cmd
}

func run(ctx context.Context, cfg config, log *slog.Logger) error {
	redis.SetLogger(quiet{log})
	kafka, err := cfg.options()
	if err != nil {
		return err
	}
	reg := ops.NewRegistry()
	admin := ops.NewAdmin(cfg.AdminAddr, reg, log)
	if cfg.Pprof {
		admin.EnablePprof()
	}
	if err := admin.Listen(); err != nil {
		return err
	}
	pool, err := newDatabase(ctx, cfg)
	if err != nil {
		return err
	}
	if pool != nil {
		defer pool.Close()
	}
	m, err := monitor.New(cfg.Config, monitor.Outside{
		Log: log, Registerer: reg, Database: pool, Reading: admin.Condition("reading"), Serving: admin.Condition("view"),
		Kafka: kafka,
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return admin.Run(ctx) })
	g.Go(func() error { return m.Run(ctx) })
	if pool != nil {
		g.Go(func() error { return checkTopic(ctx, pool, cfg.KafkaTopic, log) })
	}
	return g.Wait()
}

// newDatabase prepares the cell's database for a reader that cannot hold anybody up; nil when none is configured. It
// connects to nothing yet: a monitor that is started during an outage of the database is there to show it.
func newDatabase(ctx context.Context, cfg config) (*pgxpool.Pool, error) {
	if cfg.DatabaseURL == "" {
		return nil, nil
	}
	settings := map[string]string{"default_transaction_read_only": "on", "statement_timeout": "5s"}
	return ops.NewPool(ctx, cfg.DatabaseURL, "hubstate_reader", "hubstate monitor "+cfg.Instance, settings, 2)
}

// checkEvery is how often a database that does not answer is asked for its topic.
const checkEvery = 2 * time.Second

// checkTopic ends the process when the database publishes to another topic: one pipeline would be judged by another's
// backlog. A database that does not answer, or is not migrated yet, is asked again until it does.
func checkTopic(ctx context.Context, pool *pgxpool.Pool, topic string, log *slog.Logger) error {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		s, err := schema.Check(ctx, pool)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && s.Topic != topic:
			return fmt.Errorf("kafka_topic = %q: the database of database_url publishes to %q", topic, s.Topic)
		case err == nil:
			return nil
		}
		log.Warn("cannot check the database's settings, trying again", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// quiet sends what the Redis client has to say to our log; it repeats itself during an outage, which the page shows
// already.
type quiet struct{ log *slog.Logger }

// Printf implements the client's logger.
func (q quiet) Printf(_ context.Context, format string, v ...any) {
	q.log.Debug("redis client", "message", fmt.Sprintf(format, v...))
}
