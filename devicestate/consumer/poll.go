package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// poll hands records to the partitions' queues until ctx is done. It never waits for a partition: what bounds memory
// is that a partition with a full queue is paused.
func (r *run) poll(ctx context.Context) error {
	for ctx.Err() == nil {
		// A poll that returned, even one that was woken, holds rebalances off until AllowRebalance: no partition can be
		// revoked between its fetch and its queue, nor while it is rewound.
		fetches := r.client.PollFetches(r.wakeable(ctx))
		err := r.fetchError(fetches)
		fetches.EachPartition(r.dispatch)
		r.rewind()
		r.client.AllowRebalance()
		if err != nil {
			return err
		}
	}
	return nil
}

// wakeable returns a context for one poll that wake ends.
func (r *run) wakeable(ctx context.Context) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wakePoll != nil {
		r.wakePoll() // of the previous poll
	}
	ctx, r.wakePoll = context.WithCancel(ctx)
	for _, p := range r.partitions {
		if p.wantsRewind() {
			r.wakePoll()
		}
	}
	return ctx
}

func (r *run) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wakePoll != nil {
		r.wakePoll()
	}
}

// fetchError returns what the client will not get over by itself: it never fetches such a partition again, so going on
// would be a silent stop.
func (r *run) fetchError(fetches kgo.Fetches) error {
	var fatal []error
	fetches.EachError(func(topic string, partition int32, err error) {
		var lost *kgo.ErrDataLoss
		var session *kgo.ErrGroupSession
		switch {
		case errors.Is(err, context.Canceled):
		case errors.As(err, &lost):
			r.cfg.Logger.Error("the topic has lost records behind this group's offset", "partition", partition, "error", err)
		case errors.As(err, &session):
			r.cfg.Logger.Warn("group session failed, joining again", "group", r.cfg.Group, "error", err)
		default:
			fatal = append(fatal, fmt.Errorf("fetch %s/%d: %w", topic, partition, err))
		}
	})
	return errors.Join(fatal...)
}

func (r *run) dispatch(f kgo.FetchTopicPartition) {
	r.mu.Lock()
	p := r.partitions[f.Partition]
	r.mu.Unlock()
	if p == nil || f.Topic != r.cfg.Topic {
		return // an error report without a partition
	}
	p.enqueue(f.Records, f.HighWatermark, f.LogStartOffset)
}

// rewind sets back the partitions whose store has forgotten. It runs between polls, so whatever is queued afterwards
// was fetched from the new offset.
func (r *run) rewind() {
	for _, p := range r.owned() {
		offset, ok := p.takeRewind()
		if !ok {
			continue
		}
		r.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{r.cfg.Topic: {p.id: {Epoch: -1, Offset: offset}}})
	}
}
