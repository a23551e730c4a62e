package monitor

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// The rhythm of a page. The pulse is fast, so that a stop is told within a second; the overview is as fast as people read.
const (
	pulseEvery    = 250 * time.Millisecond
	overviewEvery = time.Second
	bandsEvery    = 10 * time.Second
	idleEvery     = 5 * time.Second // with no page open, for the metrics
	readTimeout   = 800 * time.Millisecond

	overviewCells = 120
	lossesShown   = 20
	bandMinutes   = 60
)

// screen holds the newest overview and tells the open pages.
type screen struct {
	view    *View
	refused func() error // why the consumer's last write was not taken
	watched *watched
	metrics *metrics
	percent int
	log     *slog.Logger

	mu        sync.Mutex
	health    Health // of the view's store
	last      Overview
	minutes   map[int64][]Delay // closed minutes, by unix minute
	bandsAt   time.Time         // when bands were told last
	listeners map[chan message]struct{}
}

// message is one server-sent event.
type message struct {
	name string
	data []byte
}

// run refreshes the screen until ctx ends. The pulse has a loop of its own: a store that hangs in the middle of an
// overview must not look like a monitor that died.
func (s *screen) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return every(ctx, pulseEvery, func(ctx context.Context) { s.pulse(ctx, time.Now()) })
	})
	g.Go(func() error {
		var last time.Time
		return every(ctx, pulseEvery, func(ctx context.Context) {
			interval := overviewEvery
			if s.viewers() == 0 {
				interval = idleEvery
			}
			if now := time.Now(); now.Sub(last) >= interval-pulseEvery/2 {
				last = now
				s.refresh(ctx, now)
			}
		})
	})
	return g.Wait()
}

// pulse moves the age of the screen and tells the pages.
func (s *screen) pulse(ctx context.Context, now time.Time) {
	if s.viewers() == 0 {
		return
	}
	o := s.begin(ctx, now)
	s.mu.Lock()
	o.Hubs, o.Losses = s.last.Hubs, s.last.Losses
	s.mu.Unlock()
	o.Findings = Findings(&o)
	s.tell("pulse", o.pulse())
}

// refresh reads a whole overview and tells it.
func (s *screen) refresh(ctx context.Context, now time.Time) {
	o := s.begin(ctx, now)
	if o.Pipeline.View.OK {
		s.fill(ctx, &o)
	}
	if ctx.Err() != nil {
		return
	}
	o.Findings = Findings(&o)
	s.mu.Lock()
	if !o.Pipeline.View.OK { // what was known stays on the page, which greys it
		o.Hubs, o.Losses = s.last.Hubs, s.last.Losses
	}
	s.last = o
	s.mu.Unlock()
	s.metrics.show(&o)
	s.metrics.snapshot.Observe(time.Since(now).Seconds())
	s.tell("overview", o)
	s.tellBands(ctx, now)
}

// begin asks how far the view has come and puts the parts' health together.
func (s *screen) begin(ctx context.Context, now time.Time) Overview {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	next, err := s.view.Offsets(ctx)
	health := err
	if health == nil {
		health = s.refused()
	}
	s.noteView(health, now)
	o := Overview{Now: now.UTC()}
	s.watched.mu.Lock()
	if err == nil {
		s.watched.horizon.Applied(next)
	}
	o.Pipeline = Pipeline{Kafka: s.watched.kafka, Consumer: s.watched.consumer, Lag: s.watched.horizon.Lag(), Outbox: s.watched.outbox}
	if seen := s.watched.horizon.SeenUntil(); !seen.IsZero() && s.watched.outbox.answered() {
		o.AsOf = AsOf(seen, s.watched.outbox.oldestUnpublished(), now).UTC()
	}
	s.watched.mu.Unlock()
	s.mu.Lock()
	o.Pipeline.View = s.health
	s.mu.Unlock()
	return o
}

func (s *screen) noteView(err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.health.OK
	s.health.set(explainRead(err), now)
	if before && err != nil {
		s.log.Warn("view store does not answer or take events", "error", err)
	}
}

func explainRead(err error) error {
	if err == nil {
		return nil
	}
	return explain(err)
}

func (s *screen) fill(ctx context.Context, o *Overview) {
	ctx, cancel := context.WithTimeout(ctx, 2*readTimeout)
	defer cancel()
	hubs, err := s.view.Hubs(ctx)
	if err == nil {
		err = s.view.Summarize(ctx, hubs, s.question(o.AsOf, o.Now, overviewCells))
	}
	if err == nil {
		o.Losses, err = s.view.Losses(ctx, lossesShown)
	}
	var recent Delays
	if err == nil {
		recent, err = s.recent(ctx, o.Now)
	}
	if err != nil {
		s.noteView(err, o.Now)
		s.mu.Lock()
		o.Pipeline.View = s.health
		s.mu.Unlock()
		return
	}
	hubs = slices.DeleteFunc(hubs, func(h Hub) bool { return h.Counts.Devices == 0 }) // its devices moved elsewhere
	for i := range hubs {
		hubs[i].Delays = recent.Percentiles(hubs[i].ID)
	}
	o.Hubs = hubs
}

func (s *screen) question(asOf, now time.Time, cells int) Question {
	return Question{AsOf: asOf, Now: now, Cells: cells, SilentPercent: s.percent}
}

// recent merges this minute and the one before.
func (s *screen) recent(ctx context.Context, now time.Time) (Delays, error) {
	sum := Delays{}
	for _, at := range []time.Time{now, now.Add(-time.Minute)} {
		d, err := s.view.Minute(ctx, at)
		if err != nil {
			return nil, err
		}
		for k, h := range d {
			if sum[k] == nil {
				sum[k] = &Histogram{}
			}
			sum[k].Merge(h)
		}
	}
	return sum, nil
}

// bands returns the percentiles of the last hour, all hubs together, a minute each, oldest first; the newest minute is
// not over yet. A minute is read once it cannot change any more and then kept.
func (s *screen) bands(ctx context.Context, now time.Time) ([]Band, error) {
	current := now.Unix() / 60
	bands := make([]Band, 0, bandMinutes)
	for m := current - bandMinutes + 1; m <= current; m++ {
		delays, err := s.minute(ctx, m, m < current-1)
		if err != nil {
			return nil, err
		}
		bands = append(bands, Band{At: time.Unix(m*60, 0).UTC(), Delays: delays})
	}
	return bands, nil
}

func (s *screen) minute(ctx context.Context, m int64, closed bool) ([]Delay, error) {
	s.mu.Lock()
	kept, ok := s.minutes[m]
	s.mu.Unlock()
	if ok {
		return kept, nil
	}
	d, err := s.view.Minute(ctx, time.Unix(m*60, 0))
	if err != nil {
		return nil, err
	}
	list := d.Percentiles("")
	if closed {
		s.mu.Lock()
		s.minutes[m] = list
		delete(s.minutes, m-bandMinutes-1)
		s.mu.Unlock()
	}
	return list, nil
}

// tellBands sends the last hour now and then; a page that opens is told by itself.
func (s *screen) tellBands(ctx context.Context, now time.Time) {
	s.mu.Lock()
	due := now.Sub(s.bandsAt) >= bandsEvery && len(s.listeners) > 0
	s.mu.Unlock()
	if !due {
		return
	}
	bands, err := s.bands(ctx, now)
	if err != nil {
		s.noteView(err, now)
		return
	}
	s.mu.Lock()
	s.bandsAt = now
	s.mu.Unlock()
	s.tell("bands", bands)
}

// current is the newest overview.
func (s *screen) current() Overview {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *screen) viewers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.listeners)
}

// listen returns a channel of what is told from now on; ok is false when limit pages are open already.
func (s *screen) listen(limit int) (ch chan message, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listeners) >= limit {
		return nil, false
	}
	ch = make(chan message, 8)
	s.listeners[ch] = struct{}{}
	s.metrics.viewers.Set(float64(len(s.listeners)))
	return ch, true
}

func (s *screen) leave(ch chan message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, ch)
	s.metrics.viewers.Set(float64(len(s.listeners)))
}

// tell sends to every open page. One that does not keep up misses messages rather than holding the others; each
// message is whole, so the next one makes up for it.
func (s *screen) tell(name string, v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listeners) == 0 {
		return
	}
	data, err := json.Marshal(v)
	if err != nil {
		s.log.Error("encode page message", "name", name, "error", err)
		return
	}
	for ch := range s.listeners {
		select {
		case ch <- message{name, data}:
		default:
		}
	}
}
