package consumer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Status is what a consumer does at the moment.
type Status struct {
	Running    bool
	Partitions []PartitionStatus // that this member reads, in order
	Lag        int64             // records, the sum over Partitions
}

// PartitionStatus is one of them.
type PartitionStatus struct {
	Partition     int32
	Next          int64 // the offset up to which it is applied; Unknown before the first record
	HighWatermark int64 // the end of the partition, a few seconds old at most while Kafka answers; Unknown before
	Lag           int64 // records between the two
	Queued        int   // records in memory
	Stalled       error // why the batch in work is being retried; nil = it is not
}

// lag of a partition that has not begun is all that it will begin with.
func (p *partition) lag() int64 {
	next := p.next
	if next < 0 && p.run.cfg.Start == StartLatest {
		return 0
	}
	return max(0, p.highWatermark-max(next, p.logStart))
}

// Status is safe to call at any time, from any goroutine.
func (c *Consumer) Status() Status {
	r := c.current.Load()
	if r == nil {
		return Status{}
	}
	s := Status{Running: true}
	for _, p := range r.owned() {
		ps := p.status()
		s.Partitions = append(s.Partitions, ps)
		s.Lag += ps.Lag
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int { return cmp.Compare(a.Partition, b.Partition) })
	return s
}

// lagInterval is how often the ends of the partitions are asked for. Fetches tell them too, but a partition that is
// paused, because its handler hangs, is not fetched: just then its lag must be seen to grow.
const lagInterval = 5 * time.Second

func (r *run) watchEnds(ctx context.Context) {
	admin := kadm.NewClient(r.client)
	for sleep(ctx, nil, lagInterval) {
		ends, err := admin.ListEndOffsets(ctx, r.cfg.Topic)
		if err != nil {
			continue // an outage shows in the batches, and the next answer repairs the number
		}
		for _, p := range r.owned() {
			if end, ok := ends.Lookup(r.cfg.Topic, p.id); ok && end.Err == nil {
				p.sawEnd(end.Offset)
			}
		}
	}
}

func (p *partition) sawEnd(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.highWatermark = max(p.highWatermark, offset)
}
