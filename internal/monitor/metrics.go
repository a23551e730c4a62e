package monitor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are this package's. No label names a device.
type metrics struct {
	devices, clockSuspect, missed, lost, silence *prometheus.GaugeVec
	screenAge, lag, viewers                      prometheus.Gauge
	parts                                        *prometheus.GaugeVec
	delay                                        *prometheus.HistogramVec
	snapshot                                     prometheus.Histogram
	outbox                                       *outboxMetrics
}

func newMetrics(reg prometheus.Registerer, database bool) *metrics {
	m := &metrics{
		devices:      hubGauge("monitor_devices", "Devices by status; a device has exactly one.", "status"),
		clockSuspect: hubGauge("monitor_clock_suspect_devices", "Devices whose own clock is implausible."),
		missed:       hubGauge("monitor_missed_reports", "Reports that devices counted and that never reached us, since the view knows them."),
		lost:         hubGauge("monitor_lost_events", "Events missing in sequences without an explanation: loss inside the pipeline."),
		silence:      hubGauge("monitor_oldest_silence_seconds", "How long the longest silent device of the hub is overdue; 0 when none is."),
		screenAge:    gauge("monitor_screen_age_seconds", "Age of the instant up to which this view has seen everything."),
		lag:          gauge("monitor_lag_records", "Records between the ends of the topic and the view."),
		viewers:      gauge("monitor_viewers", "Open pages of this instance."),
		parts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "monitor_part_up", Help: "1 when the part answers and takes what it is sent."}, []string{"part"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "monitor_event_delay_seconds", Help: "Delay of an event by stage: received, committed, published, applied, whole (received to applied).",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}}, []string{"hub", "stage"}),
		snapshot: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "monitor_snapshot_seconds", Help: "Time to read one overview from the view.", Buckets: prometheus.ExponentialBuckets(.001, 2, 12)}),
	}
	reg.MustRegister(m.devices, m.clockSuspect, m.missed, m.lost, m.silence, m.screenAge, m.lag, m.viewers, m.parts, m.delay, m.snapshot)
	if database { // without one these would say that no relay runs
		m.outbox = newOutboxMetrics(reg)
	}
	return m
}

// outboxMetrics are what the cell's database says; they outlive the relays and ingesters they are about.
type outboxMetrics struct {
	oldest, pending, relays, lanesDown, halted, dead, deadOldest prometheus.Gauge
}

func newOutboxMetrics(reg prometheus.Registerer) *outboxMetrics {
	m := &outboxMetrics{
		oldest:     gauge("monitor_oldest_unpublished_seconds", "Age of the oldest committed event that has not reached Kafka; 0 when none waits."),
		pending:    gauge("monitor_pending_rows", "Committed events that wait for Kafka, counted up to 1000 a bucket."),
		relays:     gauge("monitor_relays", "Relays that hold a lease."),
		lanesDown:  gauge("monitor_lanes_down", "Lanes that no ingester holds."),
		halted:     gauge("monitor_buckets_halted", "Buckets that wait for relay rebase."),
		dead:       gauge("monitor_dead_letters", "Dead letters that wait for a decision."),
		deadOldest: gauge("monitor_oldest_dead_letter_seconds", "Age of the oldest dead letter that waits for a decision; 0 when none does."),
	}
	reg.MustRegister(m.oldest, m.pending, m.relays, m.lanesDown, m.halted, m.dead, m.deadOldest)
	return m
}

func (m *outboxMetrics) show(o *Outbox, now time.Time) {
	if o.AskedAt.IsZero() {
		return
	}
	oldest := float64(o.OldestMs) / 1000
	if oldest > 0 && !o.OK { // the database is away: what waited then still waits
		oldest += now.Sub(o.AskedAt).Seconds()
	}
	m.oldest.Set(oldest)
	m.pending.Set(float64(o.Pending))
	m.relays.Set(float64(o.Relays))
	m.lanesDown.Set(float64(o.Lanes - o.LanesAlive))
	m.halted.Set(float64(o.Halted))
	m.dead.Set(float64(o.Dead))
	m.deadOldest.Set(float64(o.DeadOldestMs) / 1000)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func hubGauge(name, help string, more ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"hub"}, more...))
}

// show moves the gauges to an overview. A hub that is gone keeps no series behind.
func (m *metrics) show(o *Overview) {
	for _, vec := range []*prometheus.GaugeVec{m.devices, m.clockSuspect, m.missed, m.lost, m.silence} {
		vec.Reset()
	}
	for i := range o.Hubs {
		m.showHub(&o.Hubs[i], o.AsOf)
	}
	if !o.AsOf.IsZero() {
		m.screenAge.Set(o.Now.Sub(o.AsOf).Seconds())
	}
	m.lag.Set(float64(o.Pipeline.Lag))
	parts := map[string]bool{"kafka": o.Pipeline.Kafka.OK, "view": o.Pipeline.View.OK, "consumer": o.Pipeline.Consumer.OK}
	if o.Pipeline.Outbox != nil {
		parts["database"] = o.Pipeline.Outbox.OK
		m.outbox.show(o.Pipeline.Outbox, o.Now)
	}
	for part, ok := range parts {
		m.parts.WithLabelValues(part).Set(oneIf(ok))
	}
}

func (m *metrics) showHub(h *Hub, asOf time.Time) {
	for status, n := range map[Status]int64{
		Fresh: h.Counts.Fresh, Silent: h.Counts.Silent, ConnectedSilent: h.Counts.ConnectedSilent,
		NeverSeen: h.Counts.NeverSeen, Unknown: h.Counts.Unknown,
	} {
		m.devices.WithLabelValues(h.ID, string(status)).Set(float64(n))
	}
	m.clockSuspect.WithLabelValues(h.ID).Set(float64(h.Counts.ClockSuspect))
	m.missed.WithLabelValues(h.ID).Set(float64(h.Totals.Missed))
	m.lost.WithLabelValues(h.ID).Set(float64(h.Totals.Lost))
	silence := 0.0
	if !h.FirstSilentAt.IsZero() {
		silence = max(0, asOf.Sub(h.FirstSilentAt).Seconds())
	}
	m.silence.WithLabelValues(h.ID).Set(silence)
}

func oneIf(ok bool) float64 {
	if ok {
		return 1
	}
	return 0
}
