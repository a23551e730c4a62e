package partitions

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are set from the database in every turn, by the maintainer and by those that stand by: all instances show the
// same truth, and it outlives any of them.
type metrics struct {
	runway, floorAhead, oldestEnded         prometheus.Gauge
	attached, attachedBytes, waiting        prometheus.Gauge
	overdue                                 prometheus.Gauge
	archiveFailing, lastSuccess, maintainer prometheus.Gauge
	tables, bytes                           *prometheus.GaugeVec
	actions, expiredRows                    *prometheus.CounterVec
	lockTimeouts, damaged                   prometheus.Counter
	archivedRows, archivedBytes             prometheus.Counter
	turn                                    prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		reg.MustRegister(g)
		return g
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		runway:         gauge("partitions_runway_seconds", "How far ahead of the next row tables stand ready without a hole."),
		floorAhead:     gauge("partitions_floor_ahead_seconds", "How far the server's clock is behind the earliest time a row may be created at; above 0 after a step back."),
		oldestEnded:    gauge("partitions_oldest_ended_seconds", "Time since the end of the oldest partition that ended and is still attached."),
		attached:       gauge("partitions_attached", "Partitions attached to the parent."),
		attachedBytes:  gauge("partitions_attached_bytes", "Size of the attached partitions with indexes and TOAST."),
		waiting:        gauge("partitions_waiting", "Steps that are due but wait, for a cursor, the clock, a lock or an archive."),
		overdue:        gauge("partitions_overdue", "Sealed tables that were kept long enough and are still there; 0 when drops are switched off."),
		archiveFailing: gauge("partitions_archive_failing", "Sealed partitions whose last archive attempt failed."),
		lastSuccess:    gauge("partitions_last_success_timestamp_seconds", "When any maintainer last completed a turn, by the database's clock."),
		maintainer:     gauge("partitions_maintainer", "1 in the one process that maintains the partitions, else 0."),
		lockTimeouts:   counter("partitions_lock_timeouts_total", "Tries of a DDL that gave up waiting for a lock."),
		damaged:        counter("partitions_archives_damaged_total", "Archives found missing or damaged before the drop of their table."),
		archivedRows:   counter("partitions_archived_rows_total", "Rows written to archives and read back."),
		archivedBytes:  counter("partitions_archived_bytes_total", "Bytes of archive files written and read back."),
	}
	m.tables = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "partitions_tables", Help: "Tables by phase of their life."}, []string{"phase"})
	m.bytes = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "partitions_bytes", Help: "Size of tables with indexes and TOAST, by phase of their life."}, []string{"phase"})
	m.actions = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "partitions_actions_total", Help: "Steps tried, by kind and result (done, waiting, failed)."}, []string{"action", "result"})
	m.expiredRows = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "partitions_expired_rows_total", Help: "Rows deleted because they were kept long enough, by subject."}, []string{"subject"})
	m.turn = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "partitions_turn_seconds", Help: "Duration of the maintainer's turns.", Buckets: prometheus.ExponentialBuckets(0.005, 4, 10)})
	reg.MustRegister(m.tables, m.bytes, m.actions, m.expiredRows, m.turn)
	return m
}

// observe sets the gauges from what the database says.
func (m *metrics) observe(state State, now time.Time, spec Spec) {
	at := later(now, state.Floor)
	var attached, attachedBytes, failing, overdue float64
	var oldest time.Duration
	count, bytes := map[Phase]float64{}, map[Phase]float64{}
	for i := range state.Partitions {
		p := &state.Partitions[i]
		count[p.Phase]++
		bytes[p.Phase] += float64(p.Bytes)
		if p.Place == Attached || p.Place == Detaching {
			attached++
			attachedBytes += float64(p.Bytes)
			oldest = max(oldest, at.Sub(p.To))
		}
		if p.Phase == Sealed && p.Attempts > 0 {
			failing++
		}
		if !spec.KeepAll && (p.Phase == Sealed || p.Phase == Archived) && p.endedAt(now.Add(-spec.RetainSent)) {
			overdue++
		}
	}
	m.attached.Set(attached)
	m.attachedBytes.Set(attachedBytes)
	m.archiveFailing.Set(failing)
	m.overdue.Set(overdue)
	m.oldestEnded.Set(oldest.Seconds())
	m.runway.Set(state.reach(at).Seconds())
	m.floorAhead.Set(max(0, state.Floor.Sub(now)).Seconds())
	for _, phase := range []Phase{Ahead, Live, Sealing, Sealed, Archived} {
		m.tables.WithLabelValues(string(phase)).Set(count[phase])
		m.bytes.WithLabelValues(string(phase)).Set(bytes[phase])
	}
	if !state.TickedAt.IsZero() {
		m.lastSuccess.Set(float64(state.TickedAt.UnixMilli()) / 1000)
	}
}

// Reach is how far beyond now tables stand ready or attached without a hole.
func (s State) Reach(now time.Time) time.Duration { return s.reach(later(now, s.Floor)) }

// reach is how far from at on tables stand ready or attached without a hole. Partitions are ordered by From.
func (s State) reach(at time.Time) time.Duration {
	end := at
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if p.span().covers(end) && (p.Place == Attached || p.Place == Alone && p.Phase == Ahead) {
			end = p.To
		}
	}
	return end.Sub(at)
}
