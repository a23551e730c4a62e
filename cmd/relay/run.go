package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/schema"
	"github.com/hubstate/hubstate/outbox"
	"github.com/hubstate/hubstate/partitions"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

const (
	roleRelay = "hubstate_relay"
	// readyInterval is how old what /readyz says may be.
	readyInterval = 500 * time.Millisecond
	// startRetry is the pause between two tries to reach the database at start.
	startRetry = 2 * time.Second
)

func newRunCommand() *cobra.Command {
	cfg := newConfig()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Claim buckets and publish their events until stopped",
		Long: `Claim a fair share of the cell's buckets and publish their events in order, and keep the partitions of the outbox.
Any number of relays may run; they share by the database. SIGTERM releases the buckets at once.

Ready (/readyz) means: it holds buckets, or all of them are held by others.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.load(cmd); err != nil {
				return err
			}
			log, err := cfg.logger(cmd)
			if err != nil {
				return refuse(err)
			}
			return run(cmd, cfg, log)
		},
	}
	cfg.flags(cmd, &cfg.Database, &cfg.Kafka, &cfg.Engine, &cfg.Partitions, &cfg.Daemon)
	return cmd
}

func run(cmd *cobra.Command, cfg *config, log *slog.Logger) error {
	if err := cfg.validateRun(); err != nil {
		return err
	}
	limitMemory(cfg.MemoryBytes)
	reg := ops.NewRegistry()
	admin := ops.NewAdmin(cfg.AdminAddr, reg, log)
	admin.Condition("relay") // before it listens: without any condition it would call itself ready
	if cfg.Pprof {
		admin.EnablePprof()
	}
	if err := admin.Listen(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(cmd.Context())
	g.Go(func() error { return admin.Run(ctx) })
	g.Go(func() error { return daemon{cmd, cfg, log, reg, admin}.run(ctx) })
	return g.Wait()
}

// limitMemory keeps the whole process small whatever the backlog: rows that were read are bounded by memory_bytes, but the
// collector lets as much garbage gather beside them (270 MiB in a drain of 500,000 rows). GOMEMLIMIT wins.
func limitMemory(rows int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(3*rows + 64<<20)
	}
}

// daemon is one `relay run`.
type daemon struct {
	cmd   *cobra.Command
	cfg   *config
	log   *slog.Logger
	reg   *prometheus.Registry
	admin *ops.Admin
}

func (d daemon) run(ctx context.Context) error {
	settings, err := d.settings(ctx)
	if err != nil {
		return err
	}
	relay, err := d.relay(settings)
	if err != nil {
		return err
	}
	manager, err := partitions.New(d.cfg.maintainer(settings, d.reg, d.log))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return relay.Run(ctx) })
	g.Go(func() error { return manager.Run(ctx) })
	g.Go(func() error { return follow(ctx, d.admin.Condition("relay"), d.readiness(ctx, relay)) })
	d.log.Info("relay started", "cell", settings.Cell, "topic", settings.Topic, "instance", d.cfg.Instance)
	return g.Wait()
}

func (d daemon) relay(s schema.Settings) (*outbox.Relay, error) {
	kafka, err := d.cfg.kafka().Options()
	if err != nil {
		return nil, refuse(err)
	}
	return outbox.New(d.cfg.engine(s), outbox.Deps{
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			return ops.OpenConn(ctx, d.cfg.URL, roleRelay, "hubstate-relay "+d.cfg.Instance, relaySettings())
		},
		Kafka: kafka, Metrics: d.reg, Log: d.log,
	})
}

// relaySettings bound what a relay that hangs can hold: the server ends its transactions and notices a dead peer.
func relaySettings() map[string]string {
	return map[string]string{
		"TimeZone":                            "UTC",
		"synchronous_commit":                  "on",
		"idle_in_transaction_session_timeout": "10s",
		"tcp_user_timeout":                    "10s",
		"jit":                                 "off",
	}
}

// settings waits for the database: a relay that starts with the machine must not give up before it. A database that is
// there but not migrated, or of another topic, is refused at once.
func (d daemon) settings(ctx context.Context) (schema.Settings, error) {
	for {
		s, reached, err := d.trySettings(ctx)
		if err == nil || reached || ctx.Err() != nil {
			return s, err
		}
		d.admin.Condition("relay").Set(fmt.Errorf("database: %w", err))
		d.log.Warn("database not reached; trying again", "err", err)
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(startRetry):
		}
	}
}

func (d daemon) trySettings(ctx context.Context) (s schema.Settings, reached bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := d.cfg.connect(ctx, roleRelay)
	if err != nil {
		return s, false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	s, err = d.cfg.checkSchema(ctx, d.cmd, conn)
	return s, err == nil || !errors.Is(err, context.DeadlineExceeded), err
}

// readiness is the relay's own, once it has claimed: a relay that holds no bucket although some are free does not work
// yet. The database is asked only until then.
func (d daemon) readiness(ctx context.Context, relay *outbox.Relay) func() error {
	claimed := false
	return func() error {
		err := relay.Ready()
		if err != nil || claimed {
			return err
		}
		if err := d.claiming(ctx, relay.Instance()); err != nil {
			return err
		}
		claimed = true
		return nil
	}
}

func (d daemon) claiming(ctx context.Context, instance string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := d.cfg.connect(ctx, roleRelay)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var mine, free int
	if err := conn.QueryRow(ctx, selectClaimed, instance).Scan(&mine, &free); err != nil {
		return fmt.Errorf("count claimed buckets: %w", err)
	}
	if mine == 0 && free > 0 {
		return errors.New("no bucket is claimed yet")
	}
	return nil
}

// follow copies what ready says into a readiness condition.
func follow(ctx context.Context, condition *ops.Condition, ready func() error) error {
	tick := time.NewTicker(readyInterval)
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
