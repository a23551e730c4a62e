package outbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// Relay publishes the rows of the buckets it owns. Any number of relays share the buckets of a cell through the database.
// See doc.go for what it guarantees.
type Relay struct {
	cfg  Config
	deps Deps
	m    *metrics

	instance string
	trusted  atomic.Pointer[time.Time]
	paused   atomic.Bool
	hears    atomic.Bool
	facts    atomic.Pointer[TopicFacts]
	state    atomic.Pointer[string] // why it is not ready; nil = ready
}

// New checks the configuration and returns a relay; nothing is connected before Run.
func New(cfg Config, deps Deps) (*Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("outbox relay configuration: %w", err)
	}
	if deps.Connect == nil || len(deps.Kafka) == 0 {
		return nil, errors.New("outbox relay: a database connector and Kafka options are required")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	var suffix [4]byte
	if _, err := rand.Read(suffix[:]); err != nil {
		return nil, fmt.Errorf("name instance: %w", err)
	}
	r := &Relay{cfg: cfg.withDefaults(), deps: deps, m: newMetrics(deps.Metrics)}
	r.instance = cfg.Instance + "/" + hex.EncodeToString(suffix[:])
	r.deps.Log = deps.Log.With("instance", r.instance)
	r.notReady("starting")
	return r, nil
}

// Instance is the name this process has in relay_instance: Config.Instance with a suffix, new at each start, so that a
// process which was killed is never taken for its successor.
func (r *Relay) Instance() string { return r.instance }

// Ready is nil when the relay holds a trusted lease and can reach Kafka, else why not.
func (r *Relay) Ready() error {
	if why := r.state.Load(); why != nil {
		return errors.New(*why)
	}
	until := r.trusted.Load()
	if until == nil || !r.cfg.now().Before(*until) {
		return errors.New("no trusted lease")
	}
	if r.paused.Load() {
		return errors.New("kafka cannot be read")
	}
	return nil
}

func (r *Relay) notReady(why string) { r.state.Store(&why) }

// Run publishes until ctx ends. It then stops reading, waits for its own acknowledgements up to Config.HandOver, writes
// the last cursors, releases its buckets and returns nil. It returns an error only for what waiting cannot cure: a topic
// with another partition count.
func (r *Relay) Run(ctx context.Context) error {
	admin, err := kgo.NewClient(append(r.deps.Kafka, kgo.FetchMaxWait(100*time.Millisecond))...)
	if err != nil {
		return fmt.Errorf("open kafka client: %w", err)
	}
	defer admin.Close()
	facts, err := r.awaitTopic(ctx, admin)
	if err != nil || ctx.Err() != nil {
		return err
	}
	producer, err := kgo.NewClient(append(r.deps.Kafka, producerOptions(&r.cfg, int32(min(facts.MaxMessageBytes, 1<<30)))...)...)
	if err != nil {
		return fmt.Errorf("open kafka producer: %w", err)
	}
	r.warmUp(ctx, producer)
	return r.work(ctx, admin, producer)
}

// awaitTopic waits until the topic can be checked. A wrong partition count is final.
func (r *Relay) awaitTopic(ctx context.Context, admin *kgo.Client) (TopicFacts, error) {
	spec := TopicSpec{Name: r.cfg.Topic, Partitions: r.cfg.TopicPartitions}
	for {
		facts, err := EnsureTopic(ctx, admin, spec)
		if err == nil {
			facts.MaxMessageBytes = or(facts.MaxMessageBytes, defaultMaxMessageBytes)
			r.facts.Store(&facts)
			return facts, nil
		}
		var wrong *PartitionCountError
		if errors.As(err, &wrong) {
			return facts, err
		}
		if ctx.Err() != nil {
			return facts, nil
		}
		r.notReady("topic not reachable")
		r.deps.Log.Warn("topic not checked", "topic", r.cfg.Topic, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// defaultMaxMessageBytes is Kafka's default, for a cluster that does not let us describe its topics.
const defaultMaxMessageBytes = 1048588

// warmUp loads the topic's partitions, opens the connections and takes the producer id before buckets are claimed: the
// first records after a cold start took 1.6 s. It returns when ctx ends or all that is there.
func (r *Relay) warmUp(ctx context.Context, producer *kgo.Client) {
	for {
		err := r.warm(ctx, producer)
		if err == nil || ctx.Err() != nil {
			return
		}
		r.notReady("producer not connected")
		r.deps.Log.Warn("producer not connected", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// warm sends nothing: a record for a partition that does not exist makes the client load the topic and is then refused by
// the client itself.
func (r *Relay) warm(ctx context.Context, producer *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	probe := producer.ProduceSync(ctx, &kgo.Record{Topic: r.cfg.Topic, Partition: -1}).FirstErr()
	if ctx.Err() != nil {
		return fmt.Errorf("load topic: %w", probe)
	}
	if _, _, err := producer.ProducerID(ctx); err != nil {
		return fmt.Errorf("take producer id: %w", err)
	}
	if err := producer.EnsureProduceConnectionIsOpen(ctx); err != nil {
		return fmt.Errorf("open produce connections: %w", err)
	}
	return nil
}

// work runs the loops. The engine ends first; the leaser keeps the lease while it drains; closing the client frees the
// groups whose records have no fate.
func (r *Relay) work(ctx context.Context, admin, producer *kgo.Client) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	loops, loopCtx := errgroup.WithContext(background)

	standings := make(chan standing)
	l := &leaser{cfg: r.cfg, instance: r.instance, link: r.link("lease", r.cfg.TTL/2), log: r.deps.Log, out: standings, trusted: &r.trusted, paused: &r.paused}
	e := r.newEngine(producer, standings)
	r.startWorkers(loopCtx, loops, e, admin)
	loops.Go(func() error { return l.run(loopCtx) })
	loops.Go(func() error { return r.watch(loopCtx) })
	loops.Go(func() error { return r.watchTopic(loopCtx, admin, producer) })
	context.AfterFunc(ctx, func() { l.draining.Store(true) })

	r.state.Store(nil)
	err := e.run(ctx)
	r.notReady("stopping")
	stop()
	producer.Close()
	e.publish.open.Wait() // closing the client gave every record a fate
	err = errors.Join(err, loops.Wait())
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if uerr := l.unregister(bye); uerr != nil {
		r.deps.Log.Warn("instance not unregistered", "error", uerr)
	}
	l.link.close()
	return err
}

// sweepers is how many sweeps may be under way: one is read while another is rendered.
const sweepers = 2

func (r *Relay) link(name string, timeout time.Duration) link {
	return link{name: name, connect: r.deps.Connect, timeout: timeout}
}

func (r *Relay) newEngine(producer *kgo.Client, standings <-chan standing) *engine {
	sent := make(chan *group, r.cfg.TopicPartitions)
	return &engine{
		cfg: &r.cfg, instance: r.instance, log: r.deps.Log, m: r.m, trusted: &r.trusted, paused: &r.paused, hears: &r.hears,
		publish: &publisher{client: producer, sent: sent}, groupMax: r.groupBytes,
		limiter: NewLimiter(Rate{Records: r.cfg.RecordsPerSecond, Bytes: r.cfg.BytesPerSecond}),
		buckets: make(map[int16]*bucketState), flows: make(map[int32]*flow), leaving: make(map[int16]int64),
		average: 2048, idle: r.cfg.PollMin, numSweeps: sweepers,
		standing: standings, sent: sent,
	}
}

func (r *Relay) startWorkers(ctx context.Context, loops *errgroup.Group, e *engine, admin *kgo.Client) {
	sweeps, swept := make(chan *sweepRequest, sweepers), make(chan sweepResult)
	jobs, written := make(chan []bucketWrite, 1), make(chan writeResult)
	decided, heard := make(chan []decidedHead), make(chan struct{}, 1)
	e.decided, e.heard = decided, heard
	ear := &listener{link: r.link("bell", 5*time.Second), heard: heard, hears: &r.hears, log: r.deps.Log}
	loops.Go(func() error { return ear.run(ctx) })
	d := &decidedWatch{instance: r.instance, link: r.link("look for decisions", 5*time.Second), out: decided, log: r.deps.Log}
	loops.Go(func() error { return d.run(ctx) })
	tails, tailed := make(chan tailRequest, 1), make(chan tailResult)
	e.sweeps, e.swept, e.jobs, e.written, e.tails, e.tailed = sweeps, swept, jobs, written, tails, tailed
	pool := &windowPool{}
	for range sweepers {
		s := &sweeper{cfg: &r.cfg, link: r.link("sweep", 30*time.Second), render: newRenderer(&r.cfg), windows: pool, limits: r.limits, in: sweeps, out: swept}
		s.barrier = barrier{standby: r.cfg.Standby, log: r.deps.Log, m: r.m}
		loops.Go(func() error { return s.run(ctx) })
	}
	w := &cursorWriter{instance: r.instance, link: r.link("cursor write", 10*time.Second), plans: r.link("plan backlog", planTimeout), in: jobs, out: written}
	loops.Go(func() error { return w.run(ctx) })
	t := &tailReader{cfg: &r.cfg, link: r.link("tail check", tailTimeout), client: admin, in: tails, out: tailed}
	loops.Go(func() error { return t.run(ctx) })
}

// batchOverhead is what a batch's own header may take of max.message.bytes.
const batchOverhead = 512

func (r *Relay) groupBytes() int {
	return min(r.cfg.GroupBytes, r.facts.Load().MaxMessageBytes-batchOverhead)
}

// limits are the bytes of a group and of a single record, from the topic as it was last seen.
func (r *Relay) limits() (group, record int) {
	return r.groupBytes(), r.facts.Load().MaxMessageBytes - batchOverhead
}
