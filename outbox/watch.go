package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topicRefresh is how often the topic's settings are read again: a lowered message limit, a deleted topic.
const topicRefresh = 30 * time.Second

// watchTopic keeps the facts of the topic current and says aloud what changed.
func (r *Relay) watchTopic(ctx context.Context, admin, producer *kgo.Client) error {
	tick := time.NewTicker(topicRefresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			r.refreshTopic(ctx, admin, producer)
		}
	}
}

func (r *Relay) refreshTopic(ctx context.Context, admin, producer *kgo.Client) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	facts, err := EnsureTopic(ctx, admin, TopicSpec{Name: r.cfg.Topic, Partitions: r.cfg.TopicPartitions, MustExist: true})
	if err != nil {
		r.deps.Log.Warn("topic not checked", "topic", r.cfg.Topic, "error", err)
		return
	}
	facts.MaxMessageBytes = or(facts.MaxMessageBytes, defaultMaxMessageBytes)
	if earlier := r.facts.Load(); facts.ID != earlier.ID {
		r.adoptTopic(ctx, admin, producer)
	}
	for _, change := range facts.Changes(*r.facts.Load()) {
		r.deps.Log.Warn("topic changed", "topic", r.cfg.Topic, "change", change)
	}
	r.facts.Store(&facts)
}

// adoptTopic makes the clients forget a topic that was deleted and made again: franz-go never takes a new topic id for a
// topic it knows, and fails everything with UNKNOWN_TOPIC_ID instead. What the producer still held fails (PURGED, an
// outage) and is read again.
func (r *Relay) adoptTopic(ctx context.Context, admin, producer *kgo.Client) {
	admin.PurgeTopicsFromClient(r.cfg.Topic)
	producer.PurgeTopicsFromClient(r.cfg.Topic)
	if err := r.warm(ctx, producer); err != nil {
		r.deps.Log.Warn("topic not loaded again", "topic", r.cfg.Topic, "error", err)
	}
}

// watch measures what does not move by itself: ages and counts also change when nothing flows.
func (r *Relay) watch(ctx context.Context) error {
	w := &watcher{m: r.m, instance: r.instance, link: r.link("watch", 5*time.Second)}
	defer w.link.close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := w.measure(ctx); err != nil && ctx.Err() == nil {
				r.deps.Log.Warn("backlog not measured", "error", err)
			}
		}
	}
}

type watcher struct {
	m        *metrics
	instance string
	link     link
	turns    int
}

// pendingEvery is how many measurements of the age there are to one of the size.
const pendingEvery = 10

func (w *watcher) measure(ctx context.Context) error {
	limit := 1
	if w.turns%pendingEvery == 0 {
		limit = 10_000
	}
	w.turns++
	return w.link.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var oldest float64
		var pending int64
		if err := conn.QueryRow(ctx, measureBacklog, w.instance, limit).Scan(&oldest, &pending); err != nil {
			return fmt.Errorf("measure backlog: %w", err)
		}
		w.m.oldest.Set(oldest)
		if limit > 1 || pending == 0 {
			w.m.pending.Set(float64(pending))
		}
		return nil
	})
}
