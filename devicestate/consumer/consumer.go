package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// Consumer is one member of a consumer group.
type Consumer struct {
	cfg     Config
	metrics *metrics
	current atomic.Pointer[run]
}

// New returns a consumer that does nothing yet. The error joins all problems of cfg.
func New(cfg Config) (*Consumer, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	if s, ok := cfg.Store.(interface{ validate() error }); ok {
		errs = append(errs, s.validate())
	}
	if err := kgo.ValidateOpts((&run{cfg: &cfg}).options()...); err != nil {
		errs = append(errs, fmt.Errorf("consumer config: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c := &Consumer{cfg: cfg}
	m, err := newMetrics(cfg.Registerer, c.Status)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	c.metrics = m
	return c, nil
}

// ErrRunning is returned by Run while another Run of the same consumer has not ended.
var ErrRunning = errors.New("consumer is running already")

// Run joins the group and works until ctx is done; then it takes no more work, lets the batches in work end (at most
// Config.DrainTimeout), commits, leaves the group and returns nil. Outages are waited out. It returns an error when it cannot
// go on: a *PoisonError under the policy Stop, a missing right, a topic that was deleted. It may be called again.
func (c *Consumer) Run(ctx context.Context) error {
	r := &run{cfg: &c.cfg, metrics: c.metrics, partitions: map[int32]*partition{}, slots: make(chan struct{}, c.cfg.Concurrency)}
	if !c.current.CompareAndSwap(nil, r) {
		return ErrRunning
	}
	defer c.current.Store(nil)
	return r.run(ctx)
}

// run is one call of Run.
type run struct {
	cfg     *Config
	metrics *metrics
	client  *kgo.Client
	link    link
	slots   chan struct{} // one token per batch in work

	workers   *errgroup.Group
	work      context.Context // of the batches in work; ends DrainTimeout after the intake
	compacted bool

	mu         sync.Mutex
	partitions map[int32]*partition
	draining   bool // no partition is begun any more
	wakePoll   context.CancelFunc
}

func (r *run) run(ctx context.Context) error {
	// Two contexts: intake ends first, work later.
	work, cancelWork := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelWork()
	r.workers, r.work = errgroup.WithContext(work)
	intake, stopIntake := context.WithCancel(ctx)
	defer stopIntake()
	context.AfterFunc(r.work, stopIntake) // a worker failed for good

	var err error
	if r.client, err = kgo.NewClient(r.options()...); err != nil {
		return fmt.Errorf("make kafka client: %w", err)
	}
	defer r.leave(ctx)
	r.link = r.kafkaLink()
	r.compacted = r.isCompacted(intake)
	r.client.AddConsumeTopics(r.cfg.Topic) // only now: the callbacks need all of the above

	r.workers.Go(func() error {
		r.watchEnds(intake)
		return nil
	})
	pollErr := r.poll(intake)
	stopIntake()
	drained := r.drain(cancelWork)
	r.commit(context.WithoutCancel(ctx))
	return errors.Join(pollErr, drained)
}

// link is what the partitions need of Kafka.
type link struct {
	pause   func(partition int32)
	resume  func(partition int32)
	mark    func(b *Batch, leaderEpoch int32)
	produce func(context.Context, *kgo.Record) error
}

func (r *run) kafkaLink() link {
	return link{
		pause: func(partition int32) {
			r.client.PauseFetchPartitions(map[string][]int32{r.cfg.Topic: {partition}})
		},
		resume: func(partition int32) {
			r.client.ResumeFetchPartitions(map[string][]int32{r.cfg.Topic: {partition}})
		},
		mark: func(b *Batch, leaderEpoch int32) {
			r.client.MarkCommitOffsets(map[string]map[int32]kgo.EpochOffset{
				b.Topic: {b.Partition: {Epoch: leaderEpoch, Offset: b.Next}}})
		},
		produce: func(ctx context.Context, record *kgo.Record) error {
			return r.client.ProduceSync(ctx, record).FirstErr()
		},
	}
}

// leave makes the group's next member go on at once, if the broker can be told within a few seconds.
func (r *run) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	r.client.AllowRebalance()
	if err := r.client.LeaveGroupContext(ctx); err != nil {
		r.cfg.Logger.Warn("leaving the group failed, it goes on after the session timeout", "group", r.cfg.Group, "error", err)
	}
	r.client.CloseAllowingRebalance()
}

// leaveTimeout bounds the last commit, and telling the broker that we leave.
const leaveTimeout = 5 * time.Second

// options are defaults, then those of the caller, then what the loop relies on.
func (r *run) options() []kgo.Opt {
	cfg := r.cfg
	opts := []kgo.Opt{
		kgo.FetchMaxBytes(16 << 20),
		// A resumed partition joins the next fetch, so this bounds how long it waits for one that is empty.
		kgo.FetchMaxWait(500 * time.Millisecond),
	}
	if len(cfg.Brokers) > 0 {
		opts = append(opts, kgo.SeedBrokers(cfg.Brokers...))
	}
	return append(append(opts, cfg.Options...),
		kgo.ConsumerGroup(cfg.Group),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		// Used when retention has removed the offset we ask for; Resume decides all else.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.BlockRebalanceOnPoll(),
		kgo.AutoCommitMarks(),
		kgo.AutoCommitInterval(cfg.CommitInterval),
		kgo.AutoCommitCallback(r.onCommit),
		kgo.AdjustFetchOffsetsFn(r.onOffsets),
		kgo.OnPartitionsRevoked(r.onRevoked),
		kgo.OnPartitionsLost(r.onLost),
	)
}

// isCompacted asks the broker unless the configuration says so, until it answers. A member without the right to ask
// takes the topic for one that is not compacted.
func (r *run) isCompacted(ctx context.Context) bool {
	if r.cfg.Compacted {
		return true
	}
	admin, waits := kadm.NewClient(r.client), r.cfg.Retry.delays()
	for {
		configs, err := admin.DescribeTopicConfigs(ctx, r.cfg.Topic)
		if err == nil && len(configs) > 0 {
			err = configs[0].Err
		}
		var refused *kerr.Error
		switch {
		case err == nil:
			return holdsCompact(configs)
		case ctx.Err() != nil:
			return false
		case errors.As(err, &refused) && !refused.Retriable:
			r.cfg.Logger.Warn("cannot read the topic's cleanup policy, taking it for not compacted", "topic", r.cfg.Topic, "error", err)
			return false
		}
		r.cfg.Logger.Warn("kafka does not say how the topic is kept, asking again", "error", err)
		if !sleep(ctx, nil, waits.take()) {
			return false
		}
	}
}

func holdsCompact(configs kadm.ResourceConfigs) bool {
	for _, resource := range configs {
		for _, c := range resource.Configs {
			if c.Key == "cleanup.policy" && c.Value != nil && *c.Value != "delete" {
				return true
			}
		}
	}
	return false
}

func (r *run) onCommit(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
	if err == nil {
		err = commitError(resp)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		r.metrics.commitErrors.Inc()
		r.cfg.Logger.Warn("offset commit failed, the next one repeats it", "group", r.cfg.Group, "error", err)
	}
}

func commitError(resp *kmsg.OffsetCommitResponse) error {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// commit commits what is marked, once; what it cannot commit is handled again and dropped by the gate.
func (r *run) commit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := r.client.CommitMarkedOffsets(ctx); err != nil {
		r.metrics.commitErrors.Inc()
		r.cfg.Logger.Warn("offset commit failed", "group", r.cfg.Group, "error", err)
	}
}

// drain waits for the batches in work, at most DrainTimeout, and returns why workers failed.
func (r *run) drain(cancelWork context.CancelFunc) error {
	r.mu.Lock()
	r.draining = true
	for _, p := range r.partitions {
		p.stop()
	}
	r.mu.Unlock()
	timer := time.AfterFunc(r.cfg.DrainTimeout, cancelWork)
	defer timer.Stop()
	return r.workers.Wait()
}
