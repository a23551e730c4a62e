package ingest

import (
	"math/bits"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one ingester, all lanes together.
type metrics struct {
	received, abandoned, refused prometheus.Counter
	class                        [devicestate.Quarantined + 1]prometheus.Counter
	marks                        [8]prometheus.Counter
	events, gaps, missed         prometheus.Counter
	rejects                      *prometheus.CounterVec

	batchReports, commitSeconds, ackSeconds prometheus.Histogram
	retries                                 *prometheus.CounterVec

	connections, sessionsLost prometheus.Counter
	disconnects, possibleGaps *prometheus.CounterVec
	brokerDropped             prometheus.Counter
	lanes                     *prometheus.GaugeVec
	backlogBytes              prometheus.Gauge
	capBytes                  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, s *Service) *metrics {
	m := &metrics{
		received:      counterOf("ingest_received_total", "Messages that the broker delivered, redelivered copies included."),
		abandoned:     counterOf("ingest_abandoned_total", "Received messages given up with their connection: the broker delivers them again."),
		refused:       counterOf("ingest_refused_total", "Abandoned messages that never got into the queue: it was full, or their connection was over."),
		events:        counterOf("ingest_events_total", "Events appended to the outbox."),
		gaps:          counterOf("ingest_gaps_total", "Ranges of device counters that never reached us."),
		missed:        counterOf("ingest_missed_total", "Reports missing in those ranges."),
		rejects:       vecOf("ingest_rejects_total", "Quarantined reports by reason.", "reason"),
		batchReports:  histogramOf("ingest_batch_reports", "Reports in one transaction.", prometheus.ExponentialBuckets(1, 2, 13)),
		commitSeconds: histogramOf("ingest_commit_seconds", "One transaction, from connection to COMMIT.", prometheus.ExponentialBuckets(0.0005, 2, 15)),
		ackSeconds:    histogramOf("ingest_receive_to_ack_seconds", "From a report's arrival to its acknowledgement.", prometheus.ExponentialBuckets(0.0005, 2, 17)),
		retries:       vecOf("ingest_retries_total", "Transactions tried again, by reason.", "reason"),
		connections:   counterOf("ingest_connections_total", "Connections to the broker that were made."),
		disconnects:   vecOf("ingest_disconnects_total", "Connections that ended other than by a stop, by cause.", "cause"),
		sessionsLost:  counterOf("ingest_sessions_lost_total", "Sessions that the broker had forgotten."),
		possibleGaps:  vecOf("ingest_possible_gaps_total", "Windows recorded in which reports may be lost before us, by cause.", "cause"),
		brokerDropped: counterOf("ingest_broker_dropped_total", "Messages that the brokers say they dropped."),
		lanes:         prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ingest_lanes", Help: "Lanes by state: connected, disconnected (ours, no session), standby."}, []string{"state"}),
		backlogBytes:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "ingest_outbox_backlog_bytes", Help: "Unpublished bytes in the outbox, estimated."}),
		capBytes:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "ingest_outbox_cap_bytes", Help: "The cap on unpublished bytes, outbox_max_bytes: above it ingest blocks or owes."}),
	}
	reg.MustRegister(m.received, m.abandoned, m.refused, m.events, m.gaps, m.missed, m.rejects, m.batchReports, m.commitSeconds, m.ackSeconds,
		m.retries, m.connections, m.disconnects, m.sessionsLost, m.possibleGaps, m.brokerDropped, m.lanes, m.backlogBytes, m.capBytes,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ingest_queued_reports", Help: "Reports waiting for a transaction."},
			func() float64 { n, _ := s.queued(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ingest_queued_bytes", Help: "Bytes waiting for a transaction."},
			func() float64 { _, n := s.queued(); return float64(n) }))
	m.registerClasses(reg)
	return m
}

func (m *metrics) registerClasses(reg prometheus.Registerer) {
	classes := vecOf("ingest_reports_total", "Committed reports by class.", "class")
	marks := vecOf("ingest_marks_total", "Marks of applied reports.", "mark")
	reg.MustRegister(classes, marks)
	for c := devicestate.Applied; c <= devicestate.Quarantined; c++ {
		m.class[c] = classes.WithLabelValues(c.String())
	}
	for i := range m.marks {
		if name := devicestate.Marks(1 << i).String(); name != "" {
			m.marks[i] = marks.WithLabelValues(name)
		}
	}
}

// batch counts a committed and acknowledged batch.
func (m *metrics) batch(b *batch, items []item) {
	now := time.Now()
	m.batchReports.Observe(float64(len(items)))
	for c := devicestate.Applied; c <= devicestate.Quarantined; c++ {
		m.class[c].Add(float64(b.counts[c]))
	}
	for i := range items {
		m.ackSeconds.Observe(now.Sub(items[i].report.ReceivedAt).Seconds())
	}
	events := 0
	for i := range b.decisions {
		d := &b.decisions[i]
		if d.Emit {
			events++
		}
		for rest := uint8(d.Marks); rest != 0; rest &= rest - 1 {
			if c := m.marks[bits.TrailingZeros8(rest)]; c != nil {
				c.Inc()
			}
		}
	}
	m.events.Add(float64(events))
	m.counted(b)
}

func (m *metrics) counted(b *batch) {
	for i := range b.gaps.from {
		m.gaps.Inc()
		m.missed.Add(float64(b.gaps.to[i] - b.gaps.from[i] + 1))
	}
	for _, reason := range b.rejects.reason {
		m.rejects.WithLabelValues(reason).Inc()
	}
}

func counterOf(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func vecOf(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
}

func histogramOf(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}
