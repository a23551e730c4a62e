package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/schema"
	"github.com/hubstate/hubstate/outbox"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// migrateTimeout bounds the parts of a migration that talk to Kafka.
const migrateTimeout = 30 * time.Second

func newMigrateCommand() *cobra.Command {
	cfg := newConfig()
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to this release's schema and make the topic",
		Long: `Bring the database to this release's schema, record the cell's settings, make the first partitions, and, when
kafka_brokers is set, make the topic. Safe to run again and under load: it waits for no lock longer than 5 s, and a
step that is done is left alone. The URL must be that of the schema's owner; the daemons need less.

Cell, buckets, topic and topic_partitions are fixed once recorded: they decide in which bucket and partition a device
lies, and so its order.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.load(cmd); err != nil {
				return err
			}
			return migrate(cmd.Context(), cmd.OutOrStdout(), cfg)
		},
	}
	cfg.flags(cmd, &cfg.Database, &cfg.Cell, &cfg.Kafka)
	return cmd
}

func migrate(ctx context.Context, out io.Writer, cfg *config) error {
	settings := cfg.settings()
	problems := []error{settings.Validate()}
	if len(cfg.Brokers) > 0 {
		problems = append(problems, cfg.kafka().Validate())
	}
	if err := refuse(problems...); err != nil {
		return err
	}
	if err := schema.Migrate(ctx, cfg.URL, settings); err != nil {
		return fmt.Errorf("migrate %s: %w", ops.Mask(cfg.URL), err)
	}
	fmt.Fprintf(out, "schema: version %d, cell %s, %d buckets\n", schema.Latest(), settings.Cell, settings.Buckets)
	if err := firstPartitions(ctx, out, cfg); err != nil {
		return err
	}
	if len(cfg.Brokers) == 0 {
		fmt.Fprintf(out, "topic: kafka_brokers is not set; make %s with %d partitions before `relay run`\n", settings.Topic, settings.TopicPartitions)
		return nil
	}
	return migrateTopic(ctx, out, cfg, settings)
}

// firstPartitions makes the partitions of now and of the next intervals, so that an ingester may start before any relay
// maintains them. The interval is the database's own.
func firstPartitions(ctx context.Context, out io.Writer, cfg *config) error {
	conn, err := cfg.connect(ctx, "")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var names []string
	for ahead := range 3 {
		var name string
		if err := conn.QueryRow(ctx, ensurePartition, ahead).Scan(&name); err != nil {
			return fmt.Errorf("make first partitions: %w", err)
		}
		names = append(names, name)
	}
	fmt.Fprintf(out, "partitions: %s … %s attached\n", names[0], names[len(names)-1])
	return nil
}

func migrateTopic(ctx context.Context, out io.Writer, cfg *config, s schema.Settings) error {
	ctx, cancel := context.WithTimeoutCause(ctx, migrateTimeout, fmt.Errorf("no answer from kafka_brokers in %s", migrateTimeout))
	defer cancel()
	facts, err := ensureTopic(ctx, cfg, s)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	state := "found"
	if facts.Created {
		state = "made"
	}
	fmt.Fprintf(out, "topic: %s %s, %d partitions, %d replicas, min.insync.replicas %d, cleanup.policy %s, max.message.bytes %d\n",
		s.Topic, state, facts.Partitions, facts.Replication, facts.MinInsync, facts.CleanupPolicy, facts.MaxMessageBytes)
	for _, w := range facts.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
	return nil
}

func ensureTopic(ctx context.Context, cfg *config, s schema.Settings) (outbox.TopicFacts, error) {
	client, err := cfg.kafkaClient()
	if err != nil {
		return outbox.TopicFacts{}, err
	}
	defer client.Close()
	return outbox.EnsureTopic(ctx, client, outbox.TopicSpec{Name: s.Topic, Partitions: s.TopicPartitions, Replication: cfg.Replication})
}

// kafkaClient connects lazily: a broker that is away is seen by the first request.
func (c *config) kafkaClient(more ...kgo.Opt) (*kgo.Client, error) {
	opts, err := c.kafka().Options()
	if err != nil {
		return nil, refuse(err)
	}
	client, err := kgo.NewClient(append(opts, more...)...)
	if err != nil {
		return nil, fmt.Errorf("open Kafka client: %w", err)
	}
	return client, nil
}
