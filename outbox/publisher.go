package outbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hubstate/hubstate/internal/mutant"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groupLinger keeps franz-go from sending before submit says so; the timer itself is not waited for. With a short linger a
// slow moment splits a group into two batches. It is waited for only when the client does not know the topic's
// partitions, which warmUp rules out.
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

// publisher hands groups to the client. Each comes back on sent with the fate of all its records known, and not before:
// its windows may then be recycled. A record of a partition without leader has no fate until the leader is back or the
// client is closed (franz-go never fails a record that may be on the broker while idempotent), so groups come back one by
// one and nobody waits for another partition's.
type publisher struct {
	client *kgo.Client
	sent   chan<- *group  // room for one group of each partition: a promise never blocks
	open   sync.WaitGroup // groups that have not come back
}

// submit buffers all groups and only then lets the client go: what a broker's produce request costs, here and there, does
// not depend on how many partitions it has. Groups that went one by one took more than two requests a round, and each
// made every consumer that waited fetch again. It does not block.
func (p *publisher) submit(groups []*group) {
	if len(groups) == 0 {
		return
	}
	for _, g := range groups {
		p.open.Add(1)
		p.buffer(g)
	}
	p.letGo()
}

// letGo starts the sending and waits for nothing: that is what Flush does with a context that is over.
func (p *publisher) letGo() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.client.Flush(ctx)
}

func (p *publisher) buffer(g *group) {
	records := make([]*kgo.Record, 0, g.records)
	for _, s := range g.segments {
		for i := s.from; i < s.to; i++ {
			records = append(records, &s.w.records[i])
		}
	}
	g.open = len(records)
	promise := func(r *kgo.Record, err error) { p.settle(g, r, err) }
	if mutant.On(MutantSubmitEarly) && len(records) > 1 {
		p.bufferEarly(records, promise)
		return
	}
	p.produce(records, promise)
}

func (p *publisher) produce(records []*kgo.Record, promise func(*kgo.Record, error)) {
	for _, r := range records {
		p.client.Produce(context.Background(), r, promise)
	}
}

// settle takes the fate of one record. The client runs promises one after the other (kgo, Client.Produce).
func (p *publisher) settle(g *group, r *kgo.Record, err error) {
	if err != nil {
		g.fail(r, err)
	}
	g.open--
	if g.open > 0 {
		return
	}
	g.judge()
	p.sent <- g
	p.open.Done()
}

// bufferEarly is the mutant: the second half is submitted while the first is open.
func (p *publisher) bufferEarly(records []*kgo.Record, promise func(*kgo.Record, error)) {
	half := len(records) / 2
	// Both end when they have buffered, which does not block; their records count in p.open.
	go func() {
		p.produce(records[half:], promise)
		p.letGo()
	}()
	// As above.
	go func() {
		p.produce(records[:half], promise)
		p.letGo()
	}()
}

func (g *group) fail(r *kgo.Record, err error) {
	if g.failed == nil {
		g.failed = make(map[*kgo.Record]error)
	}
	g.failed[r] = err
}

// judge says how far each segment was acknowledged, and why no further.
func (g *group) judge() {
	for i := range g.segments {
		g.segments[i].settle(g.failed)
	}
	g.err = firstError(g, g.failed)
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
