package consumer

import (
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one Consumer. Without a registerer they count all the same and nobody looks.
type metrics struct {
	events       *prometheus.CounterVec
	missing      *prometheus.CounterVec
	poisoned     *prometheus.CounterVec
	tombstones   prometheus.Counter
	retries      *prometheus.CounterVec
	rewinds      prometheus.Counter
	rebalances   *prometheus.CounterVec
	commitErrors prometheus.Counter
	batchSize    prometheus.Histogram
	batchSeconds prometheus.Histogram
	occurred     prometheus.Histogram
	published    prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, status func() Status) (*metrics, error) {
	delay := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "consumer_events_total",
			Help: "Events by the verdict of the gate."}, []string{"verdict"}),
		missing: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "consumer_missing_events_total",
			Help: "Sequence numbers that did not arrive, by cause: superseded or dead (told by the relay), compacted (unknowable), loss (must stay 0)."}, []string{"cause"}),
		poisoned: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "consumer_poison_records_total",
			Help: "Records that could not be handled, by reason."}, []string{"reason"}),
		tombstones: prometheus.NewCounter(prometheus.CounterOpts{Name: "consumer_tombstones_total",
			Help: "Records without a value, passed over."}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "consumer_retries_total",
			Help: "Batches tried again, by fault: outage (store, Kafka, or marked by the handler) or attempt (the handler)."}, []string{"fault"}),
		rewinds: prometheus.NewCounter(prometheus.CounterOpts{Name: "consumer_store_rewinds_total",
			Help: "Times a partition was read again because the store had forgotten what it had confirmed."}),
		rebalances: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "consumer_partitions_moved_total",
			Help: "Partitions assigned to, revoked from or lost by this member."}, []string{"move"}),
		commitErrors: prometheus.NewCounter(prometheus.CounterOpts{Name: "consumer_commit_errors_total",
			Help: "Offset commits that failed; they are repeated with the next."}),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "consumer_batch_records",
			Help: "Records per batch.", Buckets: prometheus.ExponentialBuckets(1, 4, 7)}),
		batchSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "consumer_batch_seconds",
			Help: "Time to gate, handle and store a batch, retries included.", Buckets: delay}),
		occurred: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "consumer_occurred_to_applied_seconds",
			Help: "Device time of an event to its effect; events without a plausible device time and rebuilds are left out.", Buckets: delay}),
		published: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "consumer_published_to_applied_seconds",
			Help: "Time of the Kafka record to its effect; rebuilds are left out.", Buckets: delay}),
	}
	m.begin()
	if reg == nil {
		return m, nil
	}
	return m, m.register(reg, status)
}

// begin makes the series that alerts look at exist from the start: a counter that appears with its first
// increment shows no increase.
func (m *metrics) begin() {
	for o := devicestate.Apply; o <= devicestate.Old; o++ {
		m.events.WithLabelValues(o.String())
	}
	for _, cause := range []string{"superseded", "dead", "compacted", causeLoss} {
		m.missing.WithLabelValues(cause)
	}
	for _, reason := range []string{reasonUndecodable, reasonUnknownType, reasonUnknownVersion, reasonKeyMismatch, reasonHandler} {
		m.poisoned.WithLabelValues(reason)
	}
	for _, fault := range []string{"outage", "attempt"} {
		m.retries.WithLabelValues(fault)
	}
	for _, move := range []string{"assigned", "revoked", "lost"} {
		m.rebalances.WithLabelValues(move)
	}
}

const causeLoss = "loss"

func (m *metrics) register(reg prometheus.Registerer, status func() Status) error {
	lag := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "consumer_lag_records",
		Help: "Records on the topic that this member has still to apply, as of its last fetches."},
		func() float64 { return float64(status().Lag) })
	assigned := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "consumer_partitions",
		Help: "Partitions that this member reads."},
		func() float64 { return float64(len(status().Partitions)) })
	for _, c := range []prometheus.Collector{m.events, m.missing, m.poisoned, m.tombstones, m.retries, m.rewinds, m.rebalances,
		m.commitErrors, m.batchSize, m.batchSeconds, m.occurred, m.published, lag, assigned} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) poison(reason string) { m.poisoned.WithLabelValues(reason).Inc() }

// stored counts a batch that has been stored.
func (m *metrics) stored(b *Batch, took time.Duration, now time.Time) {
	m.batchSize.Observe(float64(len(b.Deliveries)))
	m.batchSeconds.Observe(took.Seconds())
	var verdicts [devicestate.Old + 1]int
	for _, d := range b.Deliveries {
		verdicts[d.Verdict.Outcome]++
		if d.Verdict.Applies() && !d.Rebuild {
			m.delays(d, now)
		}
		if d.Verdict.Outcome == devicestate.Hole {
			m.hole(d)
		}
	}
	for o, n := range verdicts {
		if n > 0 {
			m.events.WithLabelValues(devicestate.Outcome(o).String()).Add(float64(n))
		}
	}
}

func (m *metrics) delays(d *Delivery, now time.Time) {
	m.published.Observe(max(0, now.Sub(d.Timestamp).Seconds()))
	if !d.Event.OccurredAt.IsZero() {
		m.occurred.Observe(max(0, now.Sub(d.Event.OccurredAt).Seconds()))
	}
}

// hole counts every missing number once, by what is known of it.
func (m *metrics) hole(d *Delivery) {
	missing := d.Verdict.Missing
	var lost int64
	for _, r := range d.Verdict.Lost {
		lost += r.Size()
	}
	explained := map[string]int64{}
	for _, s := range d.Skips {
		if size := min(s.To, missing.To) - max(s.From, missing.From) + 1; size > 0 {
			explained[s.Reason] += size
		}
	}
	rest := missing.Size() - lost
	for _, reason := range []string{"superseded", "dead"} {
		m.missing.WithLabelValues(reason).Add(float64(explained[reason]))
		rest -= explained[reason]
	}
	m.missing.WithLabelValues(causeLoss).Add(float64(lost))
	if d.Compacted && rest > 0 {
		m.missing.WithLabelValues("compacted").Add(float64(rest))
	}
}
