package monitor

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hubstate/hubstate/devicestate"
)

func fleet(s *stage, n int, age time.Duration) []*kgo.Record {
	var records []*kgo.Record
	for i := range n {
		records = append(records, s.say("hub-1", name(i), "state", `{"battery":80}`, time.Now().Add(-age), nil))
	}
	return records
}

func TestService_AgesAreTheSameAfterARestart(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	first := s.monitor(nil)
	s.publish(fleet(s, 20, time.Hour)...)
	before := first.until("all silent", func(o *Overview) bool { return o.hub("hub-1").Counts.Silent == 20 })
	first.stop()
	second := s.monitor(nil)
	after := second.until("all silent again", func(o *Overview) bool { return o.hub("hub-1").Counts.Silent == 20 })
	if b, a := before.hub("hub-1"), after.hub("hub-1"); !a.FirstSilentAt.Equal(b.FirstSilentAt) || !a.SilentSince.Equal(b.SilentSince) || a.Totals != b.Totals {
		t.Errorf("restart moved ages:\n%+v\n%+v", b, a)
	}
}

func TestService_AFlushedViewIsBuiltAgainFromTheTopic(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	m := s.monitor(nil)
	s.publish(fleet(s, 50, time.Hour)...)
	settled := m.until("50 devices", func(o *Overview) bool { return o.seen(50) })
	before := settled.hub("hub-1")
	opts, err := redis.ParseURL(s.redis)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	if err := rdb.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.publish(s.say("hub-1", name(7), "state", `{}`, time.Now(), nil)) // what makes the consumer look
	rebuilt := m.until("51 events", func(o *Overview) bool { return o.seen(51) && o.hub("hub-1").Counts.Fresh == 1 })
	after := rebuilt.hub("hub-1")
	if after.Counts.Devices != 50 || !after.FirstSilentAt.Equal(before.FirstSilentAt) || len(after.Delays) > 0 && after.Delays[len(after.Delays)-1].P99 > 60000 {
		t.Errorf("rebuilt differently:\n%+v\n%+v", before, after)
	}
}

func TestService_InstancesShareTheWorkAndEachShowsAll(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	a, b := s.monitor(nil), s.monitor(nil)
	records := fleet(s, 200, 0)
	s.publish(records...)
	for _, m := range []*show{a, b} {
		o := m.until("200 fresh devices", func(o *Overview) bool { return o.seen(200) && o.hub("hub-1").Counts.Fresh == 200 })
		if got := o.hub("hub-1").Totals.Events; got != 200 {
			t.Errorf("%d events counted, want 200", got)
		}
	}
}

func TestService_StoppedKafkaMakesDevicesUnknownNotSilent(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	m := s.monitor(nil)
	// Silent in three seconds, unless they report again, which they cannot: Kafka is gone.
	var records []*kgo.Record
	for i := range 30 {
		records = append(records, s.say("hub-1", name(i), "state", `{}`, time.Now().Add(-vda5050Expect+3*time.Second), nil))
	}
	s.publish(records...)
	m.until("all fresh", func(o *Overview) bool { return o.hub("hub-1").Counts.Fresh == 30 })
	s.kafka.Close()
	stopped := time.Now()
	o := m.until("Kafka is missed", func(o *Overview) bool { return !o.Pipeline.Kafka.OK })
	if late := time.Since(stopped); late > 4*time.Second { // under a second on a quiet machine; the page test says how long
		t.Errorf("noticed after %v", late)
	}
	o = m.until("overdue", func(o *Overview) bool { return o.hub("hub-1").Counts.Fresh == 0 })
	if c := o.hub("hub-1").Counts; c.Unknown != 30 || c.Silent != 0 {
		t.Errorf("%+v", c)
	}
	if len(o.Findings) == 0 || o.Findings[0].Question != questionPipeline || !strings.Contains(o.Findings[0].Text, "Kafka") {
		t.Errorf("%+v", o.Findings)
	}
}

const vda5050Expect = 30 * time.Second

func TestService_StoppedRelayIsToldAndHoldsTheScreenBack(t *testing.T) {
	t.Parallel()
	s := newStage(t, true)
	m := s.monitor(nil)
	s.publish(fleet(s, 5, 0)...)
	o := m.until("all is well", func(o *Overview) bool { return o.seen(5) && len(o.Findings) == 0 })
	if o.Pipeline.Outbox == nil || o.Pipeline.Outbox.Relays != 1 || o.Pipeline.Outbox.LanesAlive != 1 {
		t.Fatalf("%+v", o.Pipeline.Outbox)
	}
	s.relay(false)
	s.backlog(100, 90*time.Second)
	o = m.until("the relay is missed", func(o *Overview) bool {
		return len(o.Findings) > 0 && strings.Contains(o.Findings[0].Text, "no relay") && o.Pipeline.Outbox.Pending == 100
	})
	if age := o.Now.Sub(o.AsOf); age < 89*time.Second || age > 120*time.Second {
		t.Errorf("the screen says it is %v old", age)
	}
}

func TestService_LossIsShownByDeviceAndNumberAndPolicyIsNot_C2(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	m := s.monitor(nil)
	skip := func(n int64) func(*devicestate.Event) { return func(e *devicestate.Event) { e.Sequence += n } }
	s.publish(fleet(s, 3, 0)...)
	lost := s.say("hub-1", name(0), "state", `{}`, time.Now(), skip(2))
	explained := s.say("hub-1", name(1), "state", `{}`, time.Now(), skip(3))
	explained.Headers = append(explained.Headers, kgo.RecordHeader{Key: "ce_skipped", Value: []byte("2-3:superseded,4:dead")})
	s.publish(lost, explained)
	o := m.until("a loss", func(o *Overview) bool { return len(o.Losses) > 0 && o.seen(5) })
	if len(o.Losses) != 1 || o.Losses[0].Device != name(0) || o.Losses[0].Range != "2-3" || o.hub("hub-1").Totals.Lost != 2 {
		t.Errorf("%+v", o.Losses)
	}
	if f := o.Findings; len(f) == 0 || f[0].Severity != Bad || !strings.Contains(f[0].Text, "2 events were lost") {
		t.Errorf("%+v", f)
	}
}
