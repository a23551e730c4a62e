// Command watermill forwards rows of a watermill-sql table to Kafka, with the library's own subscriber, router and Kafka
// publisher. It is a peer that `loadtest peers` measures, in a module of its own.
//
// The settings are meant to be fair: 1,000 rows a query (the default is 100), a poll every 5 ms instead of every second,
// payloads as bytes, acks from all replicas, snappy. The subscriber hands over the next row when the one before is
// acknowledged; the library has no setting for that.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
)

// table is the topic of watermill-sql, which becomes part of its tables' names.
const table = "outbox"

// keyOf names the member of a message's metadata that is its Kafka key.
const keyOf = "key"

type options struct{ database, brokers, topic string }

func main() {
	var opts options
	flag.StringVar(&opts.database, "database", "", "address of PostgreSQL")
	flag.StringVar(&opts.brokers, "brokers", "", "addresses of Kafka, separated by commas")
	flag.StringVar(&opts.topic, "topic", "", "Kafka topic")
	initialize := flag.Bool("init", false, "make the tables and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, opts, *initialize)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "watermill:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, opts options, initialize bool) error {
	pool, err := pgxpool.New(ctx, opts.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	logger := watermill.NewStdLogger(false, false)
	from, err := subscribe(pool, logger)
	if err != nil {
		return err
	}
	if initialize {
		return from.SubscribeInitialize(table)
	}
	to, err := publish(opts.brokers, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, logger)
	if err != nil {
		return err
	}
	router.AddHandler("forward", table, from, opts.topic, to, forward)
	return router.Run(ctx)
}

func forward(m *message.Message) ([]*message.Message, error) { return message.Messages{m}, nil }

func subscribe(pool *pgxpool.Pool, logger watermill.LoggerAdapter) (*wsql.Subscriber, error) {
	return wsql.NewSubscriber(wsql.BeginnerFromPgx(pool), wsql.SubscriberConfig{
		ConsumerGroup: "forwarder",
		PollInterval:  5 * time.Millisecond,
		SchemaAdapter: wsql.DefaultPostgreSQLSchema{
			SubscribeBatchSize:  1000,
			GeneratePayloadType: func(string) string { return "BYTEA" },
		},
		OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{},
	}, logger)
}

func publish(brokers string, logger watermill.LoggerAdapter) (*kafka.Publisher, error) {
	config := kafka.DefaultSaramaSyncPublisherConfig()
	config.Version = sarama.V2_8_0_0 // Kafka 4 no longer speaks the default's protocol
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Compression = sarama.CompressionSnappy
	config.Metadata.Retry.Backoff = 250 * time.Millisecond
	return kafka.NewPublisher(kafka.PublisherConfig{
		Brokers:               strings.Split(brokers, ","),
		OverwriteSaramaConfig: config,
		Marshaler: kafka.NewWithPartitioningMarshaler(func(_ string, m *message.Message) (string, error) {
			return m.Metadata.Get(keyOf), nil
		}),
	}, logger)
}
