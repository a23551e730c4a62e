package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/hubstate/hubstate/devicestate/consumer"
)

// Condition is told whether one thing that readiness needs holds; nil means it does.
type Condition interface{ Set(err error) }

// Outside is what a monitor gets from its process.
type Outside struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Database   *pgxpool.Pool // of the cell, as hubstate_reader; nil: no backlog is watched. The caller closes it.
	Reading    Condition     // reads the topic
	Serving    Condition     // the view answers
	Kafka      []kgo.Opt     // added to both Kafka clients: TLS, SASL, dialer
}

// Service is one monitor: it reads the topic into the view and serves the page.
type Service struct {
	cfg      Config
	out      Outside
	metrics  *metrics
	writer   redis.UniversalClient
	reader   redis.UniversalClient
	consumer *consumer.Consumer
	admin    *kadm.Client
	watched  *watched
	screen   *screen
	delays   *delays
	server   *server
	expected []Expected
}

// New prepares a monitor; it connects to nothing yet. The error joins all problems of cfg. Call Close when Run is never
// called.
func New(cfg Config, out Outside) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	profiles, err := LoadProfiles(cfg.Profiles)
	if err != nil {
		return nil, err
	}
	expected, err := LoadExpected(cfg.ExpectedDevices)
	if err != nil {
		return nil, err
	}
	expect, conflicts := NewExpectations(profiles)
	for _, stream := range conflicts {
		out.Log.Warn("profiles expect different things of a stream, the longer time counts", "stream", stream)
	}
	s := &Service{cfg: cfg, out: out, metrics: newMetrics(out.Registerer, out.Database != nil), watched: &watched{}, expected: expected}
	if out.Database != nil {
		s.watched.outbox = &Outbox{}
	}
	if err := s.openRedis(); err != nil {
		return nil, err
	}
	written := NewView(s.writer, cfg.KafkaTopic, expect)
	if err := s.openKafka(written); err != nil {
		return nil, errors.Join(err, s.closeRedis())
	}
	s.screen = &screen{
		view: NewView(s.reader, cfg.KafkaTopic, expect), refused: written.Refused, watched: s.watched, metrics: s.metrics, percent: cfg.SilentPercent,
		log: out.Log, minutes: map[int64][]Delay{}, listeners: map[chan message]struct{}{},
	}
	s.server = newServer(cfg, s.screen, out.Log)
	return s, nil
}

// openRedis makes two clients: the consumer waits patiently, the page gives up in time to say so.
func (s *Service) openRedis() error {
	opts, err := redis.ParseURL(s.cfg.RedisURL)
	if err != nil {
		return errors.New("redis_url: must be a URL such as redis://127.0.0.1:6379/0") // err shows the URL, password and all
	}
	opts.ContextTimeoutEnabled = true
	quick := *opts
	quick.DialTimeout, quick.ReadTimeout, quick.WriteTimeout, quick.MaxRetries = readTimeout, 2*readTimeout, readTimeout, -1
	s.writer, s.reader = redis.NewClient(opts), redis.NewClient(&quick)
	return nil
}

func (s *Service) closeRedis() error { return errors.Join(s.writer.Close(), s.reader.Close()) }

func (s *Service) openKafka(view *View) error {
	s.delays = &delays{view: view, metrics: s.metrics, pending: Delays{}}
	c, err := consumer.New(consumer.Config{
		Brokers: s.cfg.KafkaBrokers, Topic: s.cfg.KafkaTopic, Group: s.cfg.Group, Store: view,
		Options: append([]kgo.Opt{kgo.ClientID("hubstate-monitor-" + s.cfg.Instance)}, s.out.Kafka...),
		Observe: s.delays.observe, Poison: poisonPolicy(s.cfg.PoisonTopic), Logger: s.out.Log, Registerer: s.out.Registerer,
	})
	if err != nil {
		return err
	}
	opts := append([]kgo.Opt{kgo.SeedBrokers(s.cfg.KafkaBrokers...), kgo.ClientID("hubstate-monitor-watch"), kgo.MetadataMinAge(askEvery)}, s.out.Kafka...)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return fmt.Errorf("make kafka client: %w", err)
	}
	s.consumer, s.admin = c, kadm.NewClient(client)
	return nil
}

func poisonPolicy(topic string) consumer.PoisonPolicy {
	if topic == "" {
		return consumer.Stop()
	}
	return consumer.DeadLetterTo(topic)
}

// Listen binds the page's address; Run does it too. Addr is known afterwards.
func (s *Service) Listen() error { return s.server.listen() }

// Addr is the host:port of the page, empty before Listen.
func (s *Service) Addr() string { return s.server.addr() }

// Close releases what New opened. Run does it by itself.
func (s *Service) Close() error {
	s.admin.Close()
	return s.closeRedis()
}

// Run works until ctx ends, then leaves the consumer group and closes the page. No outage ends it: the page says what
// is wrong and goes on.
func (s *Service) Run(ctx context.Context) error {
	defer func() {
		if err := s.Close(); err != nil {
			s.out.Log.Warn("close monitor", "error", err)
		}
	}()
	if err := s.Listen(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.consume(ctx) })
	g.Go(func() error { return s.watched.watchKafka(ctx, s.admin, s.cfg.KafkaTopic) })
	g.Go(func() error { return s.delays.run(ctx, s.out.Log) })
	g.Go(func() error { return s.screen.run(ctx) })
	g.Go(func() error { return s.server.run(ctx) })
	g.Go(func() error { return s.ready(ctx) })
	if len(s.expected) > 0 {
		g.Go(func() error { return s.expect(ctx) })
	}
	if s.out.Database != nil {
		g.Go(func() error { return s.watched.watchDatabase(ctx, s.out.Database) })
	}
	return g.Wait()
}

const (
	consumeAgainAfter = 3 * time.Second // the pause before a consumer that gave up is started again
	checkViewEvery    = 500 * time.Millisecond
)

// errViewLost ends a consumer whose view lost what it had applied.
var errViewLost = errors.New("the view lost what it held and is built again")

// consume reads the topic into the view. A consumer that gives up (a poison record, a missing right) is shown on the
// page and started again: the page outlives what it reports.
func (s *Service) consume(ctx context.Context) error {
	for ctx.Err() == nil {
		s.watched.noteConsumer(nil)
		err := s.consumeOnce(ctx)
		if ctx.Err() != nil {
			break
		}
		s.watched.noteConsumer(err)
		s.out.Log.Warn("consumer ended, starting it again", "error", err)
		if !errors.Is(err, errViewLost) {
			pause(ctx, consumeAgainAfter)
		}
	}
	return nil
}

func (s *Service) consumeOnce(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.consumer.Run(ctx); err != nil {
			return err
		}
		return errors.New("the consumer stopped")
	})
	g.Go(func() error { return s.missOffsets(ctx) })
	return g.Wait()
}

// missOffsets ends the consumer when the view no longer holds what was applied to it. A partition in which nothing
// happens would never ask the view, so a flush would leave its devices missing until they report. The consumer is asked
// first: what it has applied by then must be in the view afterwards.
func (s *Service) missOffsets(ctx context.Context) error {
	tick := time.NewTicker(checkViewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		partitions := s.consumer.Status().Partitions
		stored, err := s.screen.view.Offsets(ctx)
		if err != nil {
			continue // an outage loses nothing, and the page shows it
		}
		for _, p := range partitions {
			if p.Next > 0 && stored[p.Partition] < p.Next {
				return errViewLost
			}
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// noteConsumer remembers how the consumer fares.
func (w *watched) noteConsumer(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.consumer.set(err, time.Now())
}

// ready tells the process's readiness once a second.
func (s *Service) ready(ctx context.Context) error {
	return every(ctx, time.Second, func(context.Context) {
		o := s.screen.current()
		s.out.Serving.Set(o.Pipeline.View.reason("the view's store"))
		err := o.Pipeline.Kafka.reason("kafka")
		if err == nil {
			err = o.Pipeline.Consumer.reason("the consumer")
		}
		if err == nil && !s.consumer.Status().Running {
			err = errors.New("the consumer is not running")
		}
		s.out.Reading.Set(err)
	})
}

func (h Health) reason(part string) error {
	switch {
	case h.OK:
		return nil
	case h.Reason == "":
		return fmt.Errorf("%s was not asked yet", part)
	}
	return fmt.Errorf("%s: %s", part, h.Reason)
}
