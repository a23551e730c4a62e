package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/hubstate/hubstate/internal/mutant"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// groupLinger keeps franz-go from sending a group before it is whole: ProduceSync buffers all records and then drains at
// once, so the timer is not waited for. With a short linger a slow moment splits the group into two batches. It is waited
// for only when the client does not know the topic's partitions, which warmUp rules out.
const groupLinger = time.Second

// producerOptions is the publishing discipline: idempotent, acks=all, unlimited retries, no partitioner (the bucket
// decides). The buffer limits are ours (Config.MemoryBytes): a limit of the client's would let the records of a
// partition without leader block those of the healthy ones.
func producerOptions(cfg *Config, maxBatch int32) []kgo.Opt {
	return []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(groupLinger),
		kgo.ProducerBatchMaxBytes(maxBatch),
		kgo.MaxBufferedRecords(1 << 30),
		kgo.DefaultProduceTopic(cfg.Topic),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(30 * time.Second),
		kgo.RetryBackoffFn(func(n int) time.Duration { return min(time.Duration(n)*100*time.Millisecond, time.Second) }),
		kgo.UnknownTopicRetries(-1),
	}
}

// publisher sends groups. send returns after every callback of the group: its windows may then be recycled.
type publisher struct {
	client *kgo.Client
}

// send blocks until the fate of each record is known. A record of a partition without leader has no fate until the
// leader is back or the client is closed (franz-go never fails a record that may be on the broker while idempotent), so
// each group has a goroutine of its own and nobody waits for another partition's.
func (p *publisher) send(g *group) {
	records := make([]*kgo.Record, 0, g.records)
	for _, s := range g.segments {
		for i := s.from; i < s.to; i++ {
			records = append(records, &s.w.records[i])
		}
	}
	failed := failures(p.produce(records))
	for i := range g.segments {
		g.segments[i].settle(failed)
	}
	g.err = firstError(g, failed)
}

func (p *publisher) produce(records []*kgo.Record) kgo.ProduceResults {
	if mutant.On(MutantSubmitEarly) && len(records) > 1 {
		return p.produceEarly(records)
	}
	return p.client.ProduceSync(context.Background(), records...)
}

// produceEarly is the mutant: the second half is submitted while the first is open.
func (p *publisher) produceEarly(records []*kgo.Record) kgo.ProduceResults {
	half := len(records) / 2
	var first, second kgo.ProduceResults
	var g errgroup.Group
	g.Go(func() error { second = p.client.ProduceSync(context.Background(), records[half:]...); return nil })
	g.Go(func() error { first = p.client.ProduceSync(context.Background(), records[:half]...); return nil })
	_ = g.Wait()
	return append(first, second...)
}

func failures(results kgo.ProduceResults) map[*kgo.Record]error {
	var failed map[*kgo.Record]error
	for _, r := range results {
		if r.Err == nil {
			continue
		}
		if failed == nil {
			failed = make(map[*kgo.Record]error)
		}
		failed[r.Record] = r.Err
	}
	return failed
}

// settle counts the contiguous acknowledged prefix: a row behind a failed one is not acknowledged, whatever its callback
// said, because the failed one has to go first.
func (s *segment) settle(failed map[*kgo.Record]error) {
	s.acked = s.to - s.from
	if len(failed) == 0 {
		return
	}
	if mutant.On(MutantStepOver) {
		return
	}
	for i := s.from; i < s.to; i++ {
		if failed[&s.w.records[i]] != nil {
			s.acked = i - s.from
			return
		}
	}
}

func firstError(g *group, failed map[*kgo.Record]error) error {
	if len(failed) == 0 {
		return nil
	}
	for _, s := range g.segments {
		if s.acked < s.to-s.from {
			r := &s.w.records[s.from+s.acked]
			return fmt.Errorf("publish position %d: %w", s.w.rows[s.from+s.acked].position, failed[r])
		}
	}
	return nil
}
