package consumer

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partition is one assigned partition: a queue that the poll loop fills and a worker that empties it in order.
type partition struct {
	id       int32
	run      *run
	stopping chan struct{} // closed: take no more work
	done     chan struct{} // closed by the worker's end
	stopOnce sync.Once
	work     context.Context // of the batch in work
	abandon  context.CancelFunc

	// Of the worker alone.
	decoder   decoder
	confirmed int64

	mu            sync.Mutex
	arrived       chan struct{} // one token: the queue is no longer empty
	queue         []*kgo.Record
	paused        bool
	rewindTo      int64 // Unknown = none is wanted
	rewinding     bool
	rebuildUntil  int64 // records below carry Delivery.Rebuild
	history       bool  // rebuildUntil is still to be set to the end of the partition at the first fetch
	next          int64
	highWatermark int64
	logStart      int64
	stalled       error
}

func newPartition(r *run, id int32, committed int64, at Resume) *partition {
	p := &partition{
		id: id, run: r, stopping: make(chan struct{}), done: make(chan struct{}), arrived: make(chan struct{}, 1),
		confirmed: at.Confirmed, next: Unknown, highWatermark: Unknown, rewindTo: Unknown,
		history: at.Offset == Earliest || at.Offset == Unknown && r.cfg.Start == StartEarliest,
	}
	if at.Offset >= 0 {
		p.next = at.Offset
		p.rebuildUntil = committed
	}
	p.work, p.abandon = context.WithCancel(r.work)
	return p
}

// stop ends the intake; the batch in work goes on.
func (p *partition) stop() { p.stopOnce.Do(func() { close(p.stopping) }) }

// enqueue adds what was fetched and pauses the partition when that is enough. Pausing and resuming hold the lock: were
// the client told after it is released, the worker could drain the queue in between, resume first, and the pause that
// comes then would never be lifted.
func (p *partition) enqueue(records []*kgo.Record, highWatermark, logStart int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.highWatermark, p.logStart = highWatermark, logStart
	if p.history {
		p.history, p.rebuildUntil = false, highWatermark
	}
	if p.rewinding || len(records) == 0 {
		return // fetched before the rewind
	}
	p.queue = append(p.queue, records...)
	select {
	case p.arrived <- struct{}{}:
	default:
	}
	if !p.paused && len(p.queue) >= p.run.cfg.MaxQueued {
		p.paused = true
		p.run.link.pause(p.id)
	}
}

// wait returns true when there is work.
func (p *partition) wait() bool {
	for {
		if p.queued() {
			return p.acquire()
		}
		select {
		case <-p.arrived:
		case <-p.stopping:
			return false
		case <-p.work.Done():
			return false
		}
	}
}

func (p *partition) queued() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) > 0
}

// acquire takes a slot before it takes records: what arrives meanwhile joins the batch.
func (p *partition) acquire() bool {
	select {
	case <-p.stopping: // select picks at random: a stopped partition must not win a slot
		return false
	default:
	}
	select {
	case p.run.slots <- struct{}{}:
		return true
	case <-p.stopping:
		return false
	case <-p.work.Done():
		return false
	}
}

func (p *partition) release() { <-p.run.slots }

// maxBatchBytes bounds a batch by the size of its values too: a few hundred events of the largest kind would be more
// than one script or one transaction should carry.
const maxBatchBytes = 4 << 20

// take cuts a batch from the head of the queue and resumes the partition when there is room again.
func (p *partition) take() []*kgo.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, size := 0, 0
	for n < len(p.queue) && n < p.run.cfg.MaxBatch && (n == 0 || size+len(p.queue[n].Value) <= maxBatchBytes) {
		size += len(p.queue[n].Value)
		n++
	}
	records := p.queue[:n:n]
	p.queue = p.queue[n:]
	if len(p.queue) == 0 {
		p.queue = nil // let go of the array: it holds on to whole fetches
	}
	if p.paused && len(p.queue) <= p.run.cfg.MaxQueued/2 {
		p.paused = false
		p.run.link.resume(p.id)
	}
	return records
}

// askRewind drops the queue and has the poll loop read again from where the store stands.
func (p *partition) askRewind(e *BehindError) {
	p.mu.Lock()
	p.queue, p.rewinding = nil, true
	p.rebuildUntil = max(p.rebuildUntil, e.Confirmed)
	p.rewindTo, p.next = e.Stored, e.Stored
	if e.Stored == Unknown {
		p.rewindTo = p.logStart
	}
	p.confirmed = e.Stored
	p.mu.Unlock()
	p.run.metrics.rewinds.Inc()
	p.run.cfg.Logger.Warn("store has forgotten, reading the partition again", "partition", p.id, "from", e.Stored, "confirmed", e.Confirmed)
	p.run.wake()
}

func (p *partition) wantsRewind() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rewinding
}

func (p *partition) takeRewind() (offset int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.rewinding {
		return 0, false
	}
	p.rewinding = false
	if p.paused {
		p.paused = false
		p.run.link.resume(p.id)
	}
	return p.rewindTo, true
}

// applied records that everything below next is done.
func (p *partition) applied(next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.stalled = next, nil
}

func (p *partition) stall(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = err
}

func (p *partition) rebuilding() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rebuildUntil
}

func (p *partition) status() PartitionStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PartitionStatus{Partition: p.id, Next: p.next, HighWatermark: p.highWatermark, Lag: p.lag(),
		Queued: len(p.queue), Stalled: p.stalled}
}
