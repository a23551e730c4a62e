package main

import (
	"context"
	"fmt"

	"github.com/hubstate/hubstate/internal/embedded"
	"golang.org/x/sync/errgroup"
)

// servers are where the pipeline's servers answer, and what they are.
type servers struct {
	database, mqtt, redis server
	kafka                 server
	brokers               []string
}

// server is one of them. stop is nil when it is not ours.
type server struct {
	url  string
	what string
	stop func(context.Context) error
}

const given = "as given"

// startServers starts all at the same time; they need nothing from each other.
func (h *hub) startServers(ctx context.Context) error {
	s := &h.servers
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { s.database, err = h.startDatabase(ctx); return err })
	group.Go(func() (err error) { s.mqtt, err = h.startMQTT(ctx); return err })
	group.Go(func() (err error) { s.redis, err = h.startRedis(ctx); return err })
	group.Go(func() (err error) { s.kafka, err = h.startKafka(ctx); return err })
	err := group.Wait()
	for _, server := range []server{s.database, s.kafka, s.redis, s.mqtt} {
		if server.stop != nil {
			h.onStop(server.stop)
		}
	}
	return err
}

func (h *hub) startDatabase(ctx context.Context) (server, error) {
	if h.cfg.DatabaseURL != "" {
		return server{url: h.cfg.DatabaseURL, what: given}, nil
	}
	pg, err := embedded.StartPostgres(ctx, embedded.PostgresOptions{DataDir: h.part("postgres")})
	if err != nil {
		return server{}, err
	}
	return server{url: pg.URL(), what: fmt.Sprintf("PostgreSQL %d of this machine", pg.Version()), stop: pg.Stop}, nil
}

func (h *hub) startMQTT(ctx context.Context) (server, error) {
	if h.cfg.MQTTURL != "" {
		return server{url: h.cfg.MQTTURL, what: given}, nil
	}
	if h.cfg.Real {
		broker, err := embedded.StartMosquitto(ctx, embedded.MosquittoOptions{Dir: h.part("mosquitto")})
		if err != nil {
			return server{}, err
		}
		return server{url: broker.URL(), what: "Mosquitto of this machine", stop: broker.Stop}, nil
	}
	broker, err := embedded.StartBroker(ctx, embedded.BrokerOptions{Dir: h.part("broker"), Log: h.log})
	if err != nil {
		return server{}, err
	}
	return server{url: broker.URL(), what: "embedded broker", stop: broker.Stop}, nil
}

func (h *hub) startRedis(ctx context.Context) (server, error) {
	if h.cfg.RedisURL != "" {
		return server{url: h.cfg.RedisURL, what: given}, nil
	}
	if h.cfg.Real {
		redis, err := embedded.StartRedis(ctx, embedded.RedisOptions{Dir: h.part("redis")})
		if err != nil {
			return server{}, err
		}
		return server{url: redis.URL(), what: "redis-server of this machine", stop: redis.Stop}, nil
	}
	redis, err := embedded.StartMiniredis(ctx, 0)
	if err != nil {
		return server{}, err
	}
	// The view starts empty each time; the monitor's consumer notices and reads the topic again.
	return server{url: redis.URL(), what: "embedded, in memory", stop: redis.Stop}, nil
}

func (h *hub) startKafka(ctx context.Context) (server, error) {
	if len(h.cfg.KafkaBrokers) > 0 {
		h.servers.brokers = h.cfg.KafkaBrokers
		return server{what: given}, nil
	}
	if h.cfg.Real {
		kafka, err := embedded.StartKafka(ctx, embedded.KafkaOptions{Dir: h.part("kafka")})
		if err != nil {
			return server{}, err
		}
		h.servers.brokers = kafka.Brokers()
		return server{what: "Apache Kafka " + embedded.KafkaVersion + " of this machine", stop: kafka.Stop}, nil
	}
	kafka, err := embedded.StartKfake(ctx, embedded.KfakeOptions{Dir: h.part("kfake")})
	if err != nil {
		return server{}, err
	}
	h.servers.brokers = kafka.Brokers()
	return server{what: "embedded, on disk", stop: kafka.Stop}, nil
}
