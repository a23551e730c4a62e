package monitor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are this package's; nil fields never occur. No label names a device.
type metrics struct {
	devices      *prometheus.GaugeVec
	clockSuspect *prometheus.GaugeVec
	missed       *prometheus.GaugeVec
	lost         *prometheus.GaugeVec
	oldest       *prometheus.GaugeVec
	screenAge    prometheus.Gauge
	lag          prometheus.Gauge
	answers      *prometheus.GaugeVec
	delay        *prometheus.HistogramVec
	viewers      prometheus.Gauge
	snapshot     prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		devices: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "monitor_devices", Help: "Devices by status; a device has exactly one."}, []string{"hub", "status"}),
		clockSuspect: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "monitor_clock_suspect_devices", Help: "Devices whose own clock is implausible."}, []string{"hub"}),
		missed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "monitor_missed_reports", Help: "Reports that devices counted and that never reached us, since the view knows them."}, []string{"hub"}),
		lost: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "monitor_lost_events", Help: "Events missing in sequences without an explanation: loss inside the pipeline."}, []string{"hub"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "monitor_oldest_silence_seconds", Help: "How long the longest silent device of the hub is overdue; 0 when none is."}, []string{"hub"}),
		screenAge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "monitor_screen_age_seconds", Help: "Age of the instant up to which this view has seen everything."}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "monitor_lag_records", Help: "Records between the ends of the topic and the view."}),
		answers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "monitor_part_up", Help: "1 when the part answers."}, []string{"part"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "monitor_event_delay_seconds", Help: "Delay of an event by stage: received, committed, published, applied, whole (received to applied).",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}}, []string{"hub", "stage"}),
		viewers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "monitor_viewers", Help: "Open pages of this instance."}),
		snapshot: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "monitor_snapshot_seconds", Help: "Time to read one overview from the view.", Buckets: prometheus.ExponentialBuckets(.001, 2, 12)}),
	}
	reg.MustRegister(m.devices, m.clockSuspect, m.missed, m.lost, m.oldest, m.screenAge, m.lag, m.answers, m.delay, m.viewers, m.snapshot)
	return m
}

// show moves the gauges to an overview. A hub that is gone keeps no series behind.
func (m *metrics) show(o *Overview) {
	for _, vec := range []*prometheus.GaugeVec{m.devices, m.clockSuspect, m.missed, m.lost, m.oldest} {
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
	}
	for part, ok := range parts {
		m.answers.WithLabelValues(part).Set(oneIf(ok))
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
	m.oldest.WithLabelValues(h.ID).Set(silence)
}

func oneIf(ok bool) float64 {
	if ok {
		return 1
	}
	return 0
}
