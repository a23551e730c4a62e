package monitor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
)

// tellDelaysEvery is how often counted delays go to the view.
const tellDelaysEvery = time.Second

// delays counts the delays of applied events until they are added to the view, one call a second. Safe for
// concurrent use.
type delays struct {
	view    *View
	metrics *metrics

	mu      sync.Mutex
	pending Delays
}

// observe is the consumer's Observe. History that is read again, or for the first time, says nothing about the way of
// an event to this screen; a replay and a retained copy say nothing about the way from the device.
func (d *delays) observe(deliveries []*consumer.Delivery) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, del := range deliveries {
		if !del.Verdict.Applies() || del.Rebuild || del.Replay != "" || !measurable(del.Event.Marks) {
			continue
		}
		suspect := del.Event.Marks.Has(devicestate.MarkClockSuspect)
		i := instantsOf(del, now)
		d.pending.Observe(del.Event.Hub, i, suspect)
		i.Delays(func(s Stage, delay time.Duration) {
			if countable(s, delay, suspect) {
				d.metrics.delay.WithLabelValues(del.Event.Hub, string(s)).Observe(delay.Seconds())
			}
		})
	}
}

func measurable(m devicestate.Marks) bool {
	return m&(devicestate.MarkRetained|devicestate.MarkRestated) == 0
}

// run adds what was counted to the view until ctx ends. What cannot be added is kept for the next time.
func (d *delays) run(ctx context.Context, log *slog.Logger) error {
	failing := false
	return every(ctx, tellDelaysEvery, func(ctx context.Context) {
		batch := d.take()
		if len(batch) == 0 {
			return
		}
		err := d.view.AddDelays(ctx, batch, time.Now())
		if err == nil {
			failing = false
			return
		}
		d.giveBack(batch)
		if ctx.Err() == nil && !failing {
			failing = true
			log.Warn("cannot add delays to the view, keeping them", "error", err)
		}
	})
}

func (d *delays) take() Delays {
	d.mu.Lock()
	defer d.mu.Unlock()
	batch := d.pending
	d.pending = Delays{}
	return batch
}

func (d *delays) giveBack(batch Delays) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, h := range batch {
		if d.pending[k] == nil {
			d.pending[k] = h
			continue
		}
		d.pending[k].Merge(h)
	}
}
