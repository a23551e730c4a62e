package outbox

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one relay. Instances of one process share the collectors.
type metrics struct {
	owned        prometheus.Gauge
	published    prometheus.Counter
	cursorRows   prometheus.Counter
	delay        prometheus.Histogram
	produce      prometheus.Histogram
	retries      *prometheus.CounterVec
	dead         *prometheus.CounterVec
	held         prometheus.Counter
	superseded   prometheus.Counter
	resumed      prometheus.Counter
	leasesLost   prometheus.Counter
	halted       prometheus.Counter
	tailBehind   prometheus.Counter
	oldest       prometheus.Gauge
	pending      prometheus.Gauge
	stalled      prometheus.Gauge
	breakerState prometheus.Gauge
	memory       prometheus.Gauge

	standbyWaiting prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	r := registrar{reg}
	m := &metrics{
		owned:          r.gauge("outbox_buckets_owned", "Buckets this relay owns."),
		published:      r.counter("outbox_published_total", "Rows acknowledged by Kafka."),
		cursorRows:     r.counter("outbox_cursor_rows_total", "Published rows that a committed cursor covers."),
		delay:          r.histogram("outbox_created_to_published_seconds", "From the row's created_at to Kafka's acknowledgement.", prometheus.ExponentialBucketsRange(0.001, 3600, 24)),
		produce:        r.histogram("outbox_publish_seconds", "From submitting a group to its last acknowledgement.", prometheus.ExponentialBucketsRange(0.0005, 120, 20)),
		retries:        r.counters("outbox_retries_total", "Groups that were not acknowledged, by kind of error and code.", "kind", "code"),
		dead:           r.counters("outbox_dead_letters_total", "Rows moved to outbox_dead, by code.", "code"),
		held:           r.counter("outbox_held_total", "Rows parked behind a dead row of their key."),
		superseded:     r.counter("outbox_superseded_total", "Rows left out because a newer row of their stream stood in the backlog."),
		resumed:        r.counter("outbox_resumed_total", "Rows found on the topic at claim that were not sent again."),
		leasesLost:     r.counter("outbox_leases_lost_total", "Buckets lost to another owner without having been released."),
		halted:         r.counter("outbox_halts_total", "Buckets halted because the database lost a past that was published."),
		tailBehind:     r.counter("outbox_tail_behind_total", "Buckets whose topic ends before the cursor: the topic lost published records."),
		oldest:         r.gauge("outbox_oldest_unpublished_seconds", "Age of the oldest unpublished row of the owned buckets; 0 when there is none."),
		pending:        r.gauge("outbox_pending", "Unpublished rows of the owned buckets, counted up to 10000 a bucket."),
		stalled:        r.gauge("outbox_partitions_stalled", "Kafka partitions whose outstanding group waits longer than 5s."),
		breakerState:   r.gauge("outbox_breakers_open", "Circuit breakers that are not closed: one per Kafka partition and one of the relay."),
		standbyWaiting: r.gauge("outbox_standby_waiting", "Reads whose rows wait until the standby has flushed them."),

		memory: r.gauge("outbox_buffered_bytes", "Bytes of rows read and not yet acknowledged."),
	}
	// Series that alerts watch start at 0: the first increase of a series that was not there is no increase.
	for _, code := range []string{"MESSAGE_TOO_LARGE", "INVALID_RECORD", "OVERTAKEN", "UNKNOWN"} {
		m.dead.WithLabelValues(code)
	}
	return m
}

// registrar registers collectors, or takes the one that is registered already: two relays may run in one process.
type registrar struct{ reg prometheus.Registerer }

func register[C prometheus.Collector](r registrar, c C) C {
	if r.reg == nil {
		return c
	}
	var already prometheus.AlreadyRegisteredError
	if err := r.reg.Register(c); errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	return c
}

func (r registrar) gauge(name, help string) prometheus.Gauge {
	return register(r, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func (r registrar) counter(name, help string) prometheus.Counter {
	return register(r, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func (r registrar) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func (r registrar) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(r, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}))
}

// observePublished counts the acknowledged rows of a segment. Every row up to 16, then evenly spread ones: a histogram
// observation costs as much as rendering a header, and neighbours share their instants.
func (m *metrics) observePublished(s *segment, now time.Time) {
	m.published.Add(float64(s.acked))
	step := max(1, s.acked/16)
	for i := s.from; i < s.from+s.acked; i += step {
		m.delay.Observe(float64(now.UnixMicro()-s.w.rows[i].created) / 1e6)
	}
}
