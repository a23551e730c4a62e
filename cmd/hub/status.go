package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	dto "github.com/prometheus/client_model/go"
)

// printTable says once where everything is.
func (h *hub) printTable(took time.Duration) {
	s := h.servers
	rows := [][3]string{
		{"page", "http://" + h.page + "/", ""},
		{"metrics", "http://" + h.admin.Addr() + "/metrics", ""},
		{"PostgreSQL", ops.Mask(s.database.url), s.database.what},
		{"MQTT", ops.Mask(s.mqtt.url), s.mqtt.what},
		{"Kafka", strings.Join(s.brokers, ","), s.kafka.what},
		{"Redis", ops.Mask(s.redis.url), s.redis.what},
		{"data", h.dir, ""},
	}
	for _, row := range rows {
		fmt.Fprintln(h.out, strings.TrimRight(fmt.Sprintf("%-11s %-58s %s", row[0], row[1], row[2]), " "))
	}
	fmt.Fprintf(h.out, "started in %.1f s; Ctrl-C stops\n", took.Seconds())
}

// printFlow prints what flows, a line a second, until ctx ends.
func (h *hub) printFlow(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	before := h.count()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			counts := h.count()
			fmt.Fprintln(h.out, counts.line(before, now))
			before = counts
		}
	}
}

// counts are the numbers of all parts at one instant, by metric name and label value.
type counts map[string]float64

func (h *hub) count() counts {
	c := counts{
		"online": float64(h.fleet.online.Load()), "devices": float64(len(h.fleet.devices)), "sent": float64(h.fleet.acknowledged.Load()),
	}
	families, err := h.reg.Gather()
	if err != nil {
		h.log.Warn("metrics cannot be read", "error", err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			c.add(family.GetName(), metric)
		}
	}
	return c
}

// add sums a metric over its relays; the oldest of ages counts.
func (c counts) add(name string, metric *dto.Metric) {
	key := name
	for _, label := range metric.GetLabel() {
		if label.GetName() != "relay" {
			key += "/" + label.GetValue()
		}
	}
	value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
	if strings.HasSuffix(name, "_seconds") {
		c[key] = max(c[key], value)
		return
	}
	c[key] += value
}

// line compares two instants, a second apart.
func (c counts) line(before counts, now time.Time) string {
	since := func(key string) float64 { return c[key] - before[key] }
	class := func(name string) float64 { return since("ingest_reports_total/" + name) }
	return fmt.Sprintf("%s  fleet %.0f/%.0f online, %.0f reports → ingest %.0f applied, %.0f duplicate, %.0f late, %.0f rejected → relay %.0f sent, %.0f waiting (oldest %.1f s) → screen %.0f, lost %.0f",
		now.Format("15:04:05"), c["online"], c["devices"], since("sent"), class("applied"), class("duplicate"), class("late"), class("quarantined"),
		since("outbox_published_total"), c["outbox_pending"], c["outbox_oldest_unpublished_seconds"],
		since("consumer_events_total/apply"), c["consumer_missing_events_total/loss"])
}
