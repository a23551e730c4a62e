package monitor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
)

// A Redis without memory reads well and takes nothing: the page must not go on as if the fleet had fallen silent, and when
// there is room again nothing is missing.
func TestService_AFullStoreIsToldAndNothingIsLost(t *testing.T) {
	t.Parallel()
	s, server := stageWithRedis(t)
	m := s.monitor(nil)
	s.publish(fleet(s, 40, time.Hour)...)
	m.until("40 devices", func(o *Overview) bool { return o.seen(40) })

	opts, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	admin := redis.NewClient(opts)
	t.Cleanup(func() { _ = admin.Close() })
	limit := func(bytes string) {
		if err := admin.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1mb")
	s.publish(s.say("hub-1", name(3), "state", `{}`, time.Now(), nil))
	o := m.until("the full store is told", func(o *Overview) bool { return !o.Pipeline.View.OK })
	if len(o.Findings) == 0 || !strings.Contains(o.Findings[0].Text, "OOM") || len(o.Hubs) != 1 {
		t.Errorf("%+v, hubs %d: what was known stays, and the page greys it", o.Findings, len(o.Hubs))
	}
	serving := m.out.Serving.(*noted)
	m.until("readiness and metrics tell it too", func(*Overview) bool {
		return strings.Contains(fmt.Sprint(serving.get()), "OOM") && testutil.ToFloat64(m.metrics.parts.WithLabelValues("view")) == 0
	})
	limit("0")
	m.until("nothing is missing", func(o *Overview) bool { return o.Pipeline.View.OK && o.seen(41) && o.hub("hub-1").Counts.Fresh == 1 })
	m.until("and is ready", func(*Overview) bool {
		return serving.get() == nil && testutil.ToFloat64(m.metrics.parts.WithLabelValues("view")) == 1
	})
}
