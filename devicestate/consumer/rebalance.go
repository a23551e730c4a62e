package consumer

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// onOffsets is called when partitions were assigned and the group's offsets are known, before anything is fetched. It
// must not return before the store has answered: to begin at the wrong offset is to skip or to repeat.
func (r *run) onOffsets(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	committed := map[int32]int64{}
	for partition, offset := range offsets[r.cfg.Topic] {
		committed[partition] = max(Unknown, offset.EpochOffset().Offset)
	}
	resume, err := r.resume(ctx, committed)
	if err != nil {
		return nil, err
	}
	for partition := range committed {
		at := resume[partition]
		r.assign(partition, committed[partition], at)
		offsets[r.cfg.Topic][partition] = r.kafkaOffset(at.Offset)
	}
	return offsets, nil
}

// resume asks the store until it answers or the assignment is over.
func (r *run) resume(ctx context.Context, committed map[int32]int64) (map[int32]Resume, error) {
	waits := r.cfg.Retry.delays()
	for {
		resume, err := r.cfg.Store.Resume(ctx, r.cfg.Topic, committed)
		if err == nil {
			return resume, nil
		}
		r.metrics.retries.WithLabelValues("outage").Inc()
		r.cfg.Logger.Warn("store does not say where to resume", "error", err)
		if !sleep(ctx, r.work.Done(), waits.take()) {
			return nil, err
		}
	}
}

func (r *run) kafkaOffset(offset int64) kgo.Offset {
	switch {
	case offset >= 0:
		return kgo.NewOffset().At(offset).WithEpoch(-1)
	case offset == Unknown && r.cfg.Start == StartLatest:
		return kgo.NewOffset().AtEnd()
	}
	return kgo.NewOffset().AtStart()
}

// assign starts a worker. The partition is not owned already, unless a fetch of offsets was cancelled and is repeated:
// then nothing has been read and the idle worker is replaced.
func (r *run) assign(id int32, committed int64, at Resume) {
	p := newPartition(r, id, committed, at)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return // drain is, or is done, waiting for the workers
	}
	if previous := r.partitions[id]; previous != nil {
		previous.stop()
	}
	r.partitions[id] = p
	r.metrics.rebalances.WithLabelValues("assigned").Inc()
	r.workers.Go(func() error {
		defer close(p.done)
		return p.loop()
	})
}

// onRevoked lets the batch in work end, drops the rest of the queue, and commits, before another member goes on.
func (r *run) onRevoked(ctx context.Context, _ *kgo.Client, revoked map[string][]int32) {
	gone := r.remove(revoked, "revoked")
	for _, p := range gone {
		p.stop()
	}
	deadline, cancel := context.WithTimeout(ctx, r.cfg.DrainTimeout)
	defer cancel()
	for _, p := range gone {
		select {
		case <-p.done:
		case <-deadline.Done():
			p.abandon()
			<-p.done
		}
	}
	if len(gone) > 0 {
		r.commit(ctx)
	}
}

// onLost: the group has given the partitions to others already; whatever is in work is theirs to repeat, and the gate
// keeps its effect from happening twice.
func (r *run) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	gone := r.remove(lost, "lost")
	for _, p := range gone {
		p.abandon()
	}
	for _, p := range gone {
		<-p.done
	}
}

func (r *run) remove(moved map[string][]int32, move string) []*partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	var gone []*partition
	for _, id := range moved[r.cfg.Topic] {
		if p := r.partitions[id]; p != nil {
			gone = append(gone, p)
			delete(r.partitions, id)
			r.metrics.rebalances.WithLabelValues(move).Inc()
		}
	}
	// A pause outlives the assignment and would stop the next one.
	r.client.ResumeFetchPartitions(moved)
	return gone
}

func (r *run) owned() []*partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	owned := make([]*partition, 0, len(r.partitions))
	for _, p := range r.partitions {
		owned = append(owned, p)
	}
	return owned
}
