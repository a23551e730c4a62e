package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// errGaveUp ends a batch without a result because its partition is no longer ours to work on: not an error of anything.
var errGaveUp = errors.New("partition was given up")

// loop is the worker of a partition. It returns an error only when the whole consumer must stop.
func (p *partition) loop() error {
	for p.wait() {
		err := p.batch(p.take())
		p.release()
		var behind *BehindError
		switch {
		case errors.Is(err, errGaveUp):
			return nil
		case errors.As(err, &behind):
			p.askRewind(behind)
		case err != nil:
			return err
		}
	}
	return nil
}

// batch decodes, processes and marks records for commit. It holds a slot, except while it waits between attempts.
func (p *partition) batch(records []*kgo.Record) error {
	b := p.newBatch(records)
	rebuildUntil := p.rebuilding()
	for _, r := range records {
		if isTombstone(r) {
			p.run.metrics.tombstones.Inc()
			continue
		}
		d, bad := p.decoder.decode(r)
		if bad != nil {
			if err := p.poisoned(b, r, bad); err != nil {
				return err
			}
			continue
		}
		d.Rebuild, d.Compacted = r.Offset < rebuildUntil, p.run.compacted
		b.Deliveries = append(b.Deliveries, d)
	}
	return p.process(b, records[len(records)-1])
}

func (p *partition) newBatch(records []*kgo.Record) *Batch {
	return &Batch{
		Topic: p.run.cfg.Topic, Partition: p.id, Confirmed: p.confirmed, Next: records[len(records)-1].Offset + 1,
		Deliveries: make([]*Delivery, 0, len(records)),
	}
}

// poisoned copies the record away; under the policy Stop it first finishes what stands before it.
func (p *partition) poisoned(b *Batch, r *kgo.Record, bad *poison) error {
	if p.run.cfg.Poison.topic != "" {
		return p.park(r, bad)
	}
	if len(b.Deliveries) > 0 {
		prefix := *b
		prefix.Next = r.Offset
		if err := p.process(&prefix, b.Deliveries[len(b.Deliveries)-1].record); err != nil {
			return err
		}
	}
	p.run.metrics.poison(bad.reason)
	return p.stopAt(r, bad.reason, errors.New(bad.detail))
}

func (p *partition) stopAt(r *kgo.Record, reason string, err error) error {
	return &PoisonError{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Reason: reason, Err: err}
}

// park writes a dead letter, waiting out whatever outage is in the way.
func (p *partition) park(r *kgo.Record, bad *poison) error {
	waits := p.run.cfg.Retry.delays()
	for {
		err := p.run.produceDeadLetter(p.work, r, bad)
		if err == nil {
			return nil
		}
		if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
			return p.stopAt(r, bad.reason, fmt.Errorf("%w; and its reason was: %s", err, bad.detail))
		}
		if err := p.backOff(&waits, outage, err); err != nil {
			return err
		}
	}
}

// process has the batch stored, whatever it takes, and marks it for commit.
func (p *partition) process(b *Batch, last *kgo.Record) error {
	start := time.Now()
	if err := p.attempts(b); err != nil {
		return err
	}
	now := time.Now()
	p.confirmed = b.Confirmed
	p.applied(b.Next)
	p.run.metrics.stored(b, now.Sub(start), now)
	p.tell(b)
	p.run.link.mark(b, last.LeaderEpoch)
	return nil
}

// attempts retries until the batch is stored. A handler that fails for good is given the events alone, to find which.
func (p *partition) attempts(b *Batch) error {
	waits, spent := p.run.cfg.Retry.delays(), 0
	for {
		err := p.run.cfg.Store.Process(p.work, b, p.handler())
		var behind *BehindError
		switch {
		case err == nil:
			return nil
		case p.work.Err() != nil:
			return errGaveUp
		case errors.As(err, &behind):
			return err
		}
		f := faultOf(err)
		if f == attempt {
			spent++
		}
		if f == permanent || spent >= p.run.cfg.Retry.MaxAttempts {
			return p.isolate(b, err)
		}
		if err := p.backOff(&waits, f, err); err != nil {
			return err
		}
	}
}

// handler is Config.Handler with its errors told from the store's; nil when there is none.
func (p *partition) handler() Handler {
	handle := p.run.cfg.Handler
	if handle == nil {
		return nil
	}
	return func(ctx context.Context, deliveries []*Delivery) error {
		return byHandler(ctx, handle(ctx, deliveries))
	}
}

// isolate processes the events of a failing batch one by one, or decides about the one that fails.
func (p *partition) isolate(b *Batch, cause error) error {
	if len(b.Deliveries) == 1 {
		return p.decide(b, cause)
	}
	for i, d := range b.Deliveries {
		single := &Batch{Topic: b.Topic, Partition: b.Partition, Next: d.Offset + 1, Confirmed: b.Confirmed, Deliveries: []*Delivery{d}}
		if i == len(b.Deliveries)-1 {
			single.Next = b.Next
		}
		if err := p.attempts(single); err != nil {
			return err
		}
		b.Confirmed = single.Confirmed
	}
	return nil
}

// decide is the end of an event's retries: a dead letter, after which its position moves without the effect, or Stop.
func (p *partition) decide(b *Batch, cause error) error {
	d := b.Deliveries[0]
	if p.run.cfg.Poison.topic == "" {
		p.run.metrics.poison(reasonHandler)
		return p.stopAt(d.record, reasonHandler, cause)
	}
	if err := p.park(d.record, &poison{reasonHandler, cause.Error()}); err != nil {
		return err
	}
	d.parked = true
	return p.attempts(b)
}

// backOff gives the slot to others while it waits. Called with a slot, returns with one.
func (p *partition) backOff(waits *delays, f fault, cause error) error {
	name := "outage"
	if f == attempt {
		name = "attempt"
	}
	p.run.metrics.retries.WithLabelValues(name).Inc()
	delay := waits.take()
	p.run.cfg.Logger.Warn("batch failed, trying again", "partition", p.id, "fault", name, "delay", delay, "error", cause)
	p.stall(cause)
	p.release()
	ok := sleep(p.work, p.stopping, delay)
	p.run.slots <- struct{}{}
	if !ok {
		return errGaveUp
	}
	return nil
}

// tell informs the observers, after the fact.
func (p *partition) tell(b *Batch) {
	if p.run.cfg.Observe != nil && len(b.Deliveries) > 0 {
		p.run.cfg.Observe(b.Deliveries)
	}
	if p.run.cfg.OnHole == nil {
		return
	}
	for _, d := range b.Deliveries {
		if d.Verdict.Outcome == devicestate.Hole {
			p.run.cfg.OnHole(holeOf(d))
		}
	}
}
