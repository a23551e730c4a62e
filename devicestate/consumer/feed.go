package consumer

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Feed takes records through decode, gate, handler and store as Run does, without Kafka: for tests (consumertest drives
// your handler with it) and to apply an archive. Records of one partition must be in the order of their offsets. The copies
// for the dead-letter topic are returned, not sent; errors are those of Run. Nothing is committed, and the offsets that
// the store keeps do not matter. Do not call it while Run works on the same partitions.
func (c *Consumer) Feed(ctx context.Context, records ...*kgo.Record) (dead []*kgo.Record, err error) {
	r := &run{cfg: &c.cfg, metrics: c.metrics, slots: make(chan struct{}, 1), work: ctx, compacted: c.cfg.Compacted}
	r.link = link{
		pause:   func(int32) {},
		resume:  func(int32) {},
		mark:    func(*Batch, int32) {},
		produce: func(_ context.Context, record *kgo.Record) error { dead = append(dead, record); return nil },
	}
	byPartition := map[int32][]*kgo.Record{}
	for _, record := range records {
		byPartition[record.Partition] = append(byPartition[record.Partition], record)
	}
	for _, id := range slices.Sorted(maps.Keys(byPartition)) {
		slices.SortStableFunc(byPartition[id], func(a, b *kgo.Record) int { return cmp.Compare(a.Offset, b.Offset) })
		if err := r.feed(id, byPartition[id]); err != nil {
			return dead, err
		}
	}
	return dead, ctx.Err()
}

func (r *run) feed(id int32, records []*kgo.Record) error {
	p := newPartition(r, id, Unknown, Resume{Offset: Unknown, Confirmed: Unknown})
	defer p.abandon()
	p.history = false // what is fed is news
	p.enqueue(records, records[len(records)-1].Offset+1, 0)
	for p.queued() && p.acquire() {
		err := p.batch(p.take())
		p.release()
		if err != nil {
			return err
		}
	}
	return r.work.Err()
}
