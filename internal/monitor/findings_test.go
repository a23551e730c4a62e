package monitor

import (
	"strings"
	"testing"
	"time"
)

// well is an overview in which nothing is wrong.
func well() *Overview {
	ok := Health{OK: true, Since: ago(time.Hour)}
	return &Overview{Now: noon, AsOf: ago(300 * time.Millisecond), Pipeline: Pipeline{
		Kafka: ok, View: ok, Consumer: ok,
		Outbox: &Outbox{Health: ok, Buckets: 64, Relays: 2, Lanes: 3, LanesAlive: 3, AskedAt: ago(100 * time.Millisecond)},
	}, Hubs: []Hub{{ID: "h", Counts: Counts{Devices: 10, Fresh: 10}}}}
}

func TestFindings_SayWhatWhereAndSinceWhen(t *testing.T) {
	t.Parallel()
	down := Health{Since: ago(5 * time.Second), Reason: "no answer within 600ms"}
	for _, c := range []struct {
		name     string
		change   func(*Overview)
		severity Severity
		question string
		text     string
		since    time.Time
	}{
		{"Kafka away", func(o *Overview) { o.Pipeline.Kafka = down }, Bad, questionPipeline, "Kafka does not answer: no answer within 600ms", ago(5 * time.Second)},
		{"store away", func(o *Overview) { o.Pipeline.View = down }, Bad, questionPipeline, "the view's store does not answer", ago(5 * time.Second)},
		{"poison", func(o *Overview) { o.Pipeline.Consumer = down }, Bad, questionPipeline, "this monitor does not read the topic", ago(5 * time.Second)},
		{"database away", func(o *Overview) { o.Pipeline.Outbox.Health = down }, Bad, questionPipeline, "the database does not answer", ago(5 * time.Second)},
		{"being built", func(o *Overview) { o.AsOf, o.Pipeline.Lag = time.Time{}, 1 }, Bad, questionPipeline, "the view is being built: 1 record to read", time.Time{}},
		{"the view lags", func(o *Overview) { o.AsOf, o.Pipeline.Lag = ago(9*time.Second), 77 }, Warn, questionPipeline, "this screen is 9s old: 77 records", ago(9 * time.Second)},
		{"no relay, nothing waits", func(o *Overview) { o.Pipeline.Outbox.Relays = 0 }, Bad, questionPipeline, "no relay is running; 0 rows waiting", ago(100 * time.Millisecond)},
		{"no relay, rows wait", func(o *Overview) {
			o.Pipeline.Outbox.Relays, o.Pipeline.Outbox.OldestMs, o.Pipeline.Outbox.Pending = 0, 900, 1
		}, Bad, questionPipeline, "1 row waiting", ago(time.Second)},
		{"relay cannot publish", func(o *Overview) {
			b := o.Pipeline.Outbox
			b.Outage, b.ErrorCode, b.OldestMs, b.Pending, b.PendingAtMost = 64, "NOT_LEADER", 3000, 64000, true
		}, Bad, questionPipeline, "the relay cannot publish (NOT LEADER, 64 of 64 buckets); more than 64000 rows waiting", ago(3100 * time.Millisecond)},
		{"relay late", func(o *Overview) { o.Pipeline.Outbox.OldestMs, o.Pipeline.Outbox.Pending = 2500, 7 }, Warn, questionPipeline, "the relay is late; 7 rows", ago(2600 * time.Millisecond)},
		{"halted", func(o *Overview) { o.Pipeline.Outbox.Halted = 2 }, Bad, questionPipeline, "2 buckets halted", time.Time{}},
		{"a lane is nobody's", func(o *Overview) { o.Pipeline.Outbox.LanesAlive, o.Pipeline.Outbox.LanesDown = 2, "site-3" }, Bad, questionPipeline, "nobody reads from the broker for site-3", time.Time{}},
		{"dead letters", func(o *Overview) { b := o.Pipeline.Outbox; b.Dead, b.Held, b.DeadOldestMs = 1, 4, 60000 }, Warn, questionPipeline, "1 dead letter waiting for a decision, 4 more are held behind them", ago(60*time.Second + 100*time.Millisecond)},
		{"loss", func(o *Overview) { o.Hubs[0].Totals.Lost = 1 }, Bad, questionPipeline, "1 event was lost inside the pipeline", time.Time{}},
		{"some silent", func(o *Overview) {
			h := &o.Hubs[0]
			h.Counts.Silent, h.Counts.ConnectedSilent, h.FirstSilentAt = 1, 1, ago(time.Minute)
		}, Warn, questionDevice, "2 of 10 devices silent, 1 of them connected", ago(time.Minute)},
		{"hub silent", func(o *Overview) { h := &o.Hubs[0]; h.Counts.Silent, h.SilentSince = 6, ago(time.Hour) }, Bad, questionDevice, "the hub is silent: 6 of 10 devices", ago(time.Hour)},
		{"never heard", func(o *Overview) { o.Hubs[0].Counts.NeverSeen = 1 }, Warn, questionDevice, "1 device known but never heard", time.Time{}},
		{"clock", func(o *Overview) { o.Hubs[0].Counts.ClockSuspect, o.Hubs[0].ClockSuspectAt = 3, ago(time.Hour) }, Warn, questionClock, "3 devices with an implausible clock", ago(time.Hour)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := well()
			c.change(o)
			got := Findings(o)
			if len(got) != 1 {
				t.Fatalf("%d findings: %+v", len(got), got)
			}
			if f := got[0]; f.Severity != c.severity || f.Question != c.question || !strings.Contains(f.Text, c.text) || !f.Since.Equal(c.since) {
				t.Errorf("%+v (since %v ago)", f, noon.Sub(f.Since))
			}
		})
	}
}

func TestFindings_NothingIsWrongAndTheWorstComesFirst(t *testing.T) {
	t.Parallel()
	if got := Findings(well()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	o := well()
	o.Pipeline.Outbox = nil // not watched is not wrong
	o.Hubs = append(o.Hubs, Hub{ID: "g", Counts: Counts{Devices: 1, ClockSuspect: 1}}, Hub{ID: "i", Totals: Totals{Lost: 1}})
	if got := Findings(o); len(got) != 2 || got[0].Hub != "i" || got[1].Hub != "g" {
		t.Errorf("%+v", got)
	}
}

// Unknown devices are nobody's fault but the pipeline's.
func TestFindings_UnknownDevicesAreNotCalledSilent(t *testing.T) {
	t.Parallel()
	o := well()
	o.AsOf = ago(time.Minute)
	o.Hubs[0].Counts = Counts{Devices: 10, Unknown: 10}
	for _, f := range Findings(o) {
		if f.Question == questionDevice {
			t.Errorf("%+v", f)
		}
	}
}
