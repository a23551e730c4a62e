package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/devicestate/consumer/consumertest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

const feedTopicName = "device-state"

func feedConfig() consumer.Config {
	return consumer.Config{
		Brokers: []string{"127.0.0.1:1"}, Group: "test", Store: consumer.NewMemoryStore(),
		Retry:  consumer.Retry{MinDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond, MaxAttempts: 3},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func newConsumer(t *testing.T, cfg consumer.Config) *consumer.Consumer {
	t.Helper()
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func feedEvent(device string, sequence int64, changes ...func(*kgo.Record)) *kgo.Record {
	return consumertest.Record(feedTopicName, consumertest.Event(device, 1, sequence), changes...)
}

// offsets numbers records as one partition would.
func offsets(records ...*kgo.Record) []*kgo.Record {
	for i, r := range records {
		r.Offset = int64(i)
	}
	return records
}

func recordHeader(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// TestPoison_IsCopiedWithItsReasonAndBlocksNobody: each kind of record that nobody can read, among good ones.
func TestPoison_IsCopiedWithItsReasonAndBlocksNobody(t *testing.T) {
	t.Parallel()
	good := string(feedEvent("a", 1).Value)
	for name, test := range map[string]struct {
		change func(*kgo.Record)
		reason string
	}{
		"not JSON":             {consumertest.Value([]byte("{")), "undecodable"},
		"empty value":          {consumertest.Value([]byte{}), "undecodable"},
		"deeply nested":        {consumertest.Value([]byte(strings.Repeat("[", 10000))), "undecodable"},
		"no device":            {consumertest.Value([]byte(strings.Replace(good, `"device_id"`, `"device"`, 1))), "undecodable"},
		"sequence of text":     {consumertest.Value([]byte(strings.Replace(good, `"sequence":1`, `"sequence":"1"`, 1))), "undecodable"},
		"sequence 0":           {consumertest.Value([]byte(strings.Replace(good, `"sequence":1`, `"sequence":0`, 1))), "undecodable"},
		"sequence above int64": {consumertest.Value([]byte(strings.Replace(good, `"sequence":1`, `"sequence":9223372036854775808`, 1))), "undecodable"},
		"twice the same key":   {consumertest.Value([]byte(strings.Replace(good, `"epoch":1`, `"epoch":1,"epoch":2`, 1))), "undecodable"},
		"newer version":        {consumertest.Header("ce_schemaversion", "2"), "unknown_version"},
		"no version":           {consumertest.Header("ce_schemaversion", ""), "unknown_version"},
		"another event":        {consumertest.Header("ce_type", "DeviceRetired"), "unknown_type"},
		"no headers":           {func(r *kgo.Record) { r.Headers = nil }, "unknown_type"},
		"key of another":       {func(r *kgo.Record) { r.Key = []byte("b") }, "key_mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got seen
			cfg := feedConfig()
			cfg.Handler, cfg.Poison = got.handle, consumer.DeadLetterTo("dead")
			bad := feedEvent("a", 2, test.change)
			value := string(bad.Value)
			dead, err := newConsumer(t, cfg).Feed(t.Context(), offsets(feedEvent("a", 1), bad, feedEvent("a", 3), feedEvent("b", 1))...)
			if err != nil {
				t.Fatal(err)
			}
			if got.total() != 3 {
				t.Errorf("%d good records handled, want 3", got.total())
			}
			if len(dead) != 1 || dead[0].Topic != "dead" || string(dead[0].Value) != value || string(dead[0].Key) != string(bad.Key) {
				t.Fatalf("dead letters: %v", dead)
			}
			for header, want := range map[string]string{
				"hs_reason": test.reason, "hs_topic": feedTopicName, "hs_partition": "0", "hs_offset": "1", "hs_group": "test"} {
				if h := recordHeader(dead[0], header); h != want {
					t.Errorf("%s is %q, want %q", header, h, want)
				}
			}
			if recordHeader(dead[0], "hs_error") == "" {
				t.Error("hs_error says nothing")
			}
		})
	}
}

func TestPoison_StopHandlesWhatStandsBeforeItAndNothingAfter(t *testing.T) {
	t.Parallel()
	var got seen
	cfg := feedConfig()
	cfg.Handler = got.handle
	_, err := newConsumer(t, cfg).Feed(t.Context(), offsets(feedEvent("a", 1), feedEvent("a", 2, consumertest.Value([]byte("x"))), feedEvent("a", 3))...)
	var poison *consumer.PoisonError
	if !errors.As(err, &poison) || poison.Reason != "undecodable" || poison.Offset != 1 {
		t.Fatalf("error %v, want a PoisonError at offset 1", err)
	}
	if got.total() != 1 {
		t.Errorf("%d handled, want the one before it", got.total())
	}
}

func TestDecode_UnknownFieldsAreLetThroughAndTombstonesPassedOver(t *testing.T) {
	t.Parallel()
	var got seen
	cfg := feedConfig()
	reg := prometheus.NewRegistry()
	cfg.Handler, cfg.Registerer = got.handle, reg
	newer := feedEvent("a", 1)
	newer.Value = []byte(strings.Replace(string(newer.Value), `"marks":[`, `"added_later":{"x":[1,2]},"marks":["mark_added_later"`, 1))
	if _, err := newConsumer(t, cfg).Feed(t.Context(), offsets(newer, feedEvent("a", 2, consumertest.Value(nil)), feedEvent("a", 2))...); err != nil {
		t.Fatal(err)
	}
	if got.total() != 2 || metric(t, reg, "consumer_tombstones_total", "") != 1 {
		t.Errorf("%d handled, %v tombstones", got.total(), metric(t, reg, "consumer_tombstones_total", ""))
	}
}

// failing handles all events but those of one device.
type failing struct {
	seen
	device string
	err    error
	calls  int
}

func (f *failing) handle(ctx context.Context, ds []*consumer.Delivery) error {
	for _, d := range ds {
		if d.Event.Device == f.device {
			f.calls++
			return f.err
		}
	}
	return f.seen.handle(ctx, ds)
}

func TestHandler_FailsForGood_OnlyTheFailingEventIsDead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err   error
		calls int // of the handler with the bad event: with its batch, then alone
	}{
		"plain error: retried": {errors.New("no"), 3 + 3},
		"permanent":            {consumer.Permanent(errors.New("never")), 1 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := failing{device: "bad", err: test.err}
			cfg := feedConfig()
			store := consumer.NewMemoryStore()
			cfg.Handler, cfg.Store, cfg.Poison = h.handle, store, consumer.DeadLetterTo("dead")
			dead, err := newConsumer(t, cfg).Feed(t.Context(), offsets(feedEvent("a", 1), feedEvent("bad", 1), feedEvent("a", 2), feedEvent("b", 1))...)
			if err != nil {
				t.Fatal(err)
			}
			if len(dead) != 1 || recordHeader(dead[0], "hs_reason") != "handler" || recordHeader(dead[0], "hs_error") != test.err.Error() {
				t.Fatalf("dead letters: %v", dead)
			}
			if h.calls != test.calls {
				t.Errorf("handler got the bad event %d times, want %d", h.calls, test.calls)
			}
			if got := fmt.Sprint(h.events["a"], h.events["b"]); got != "[{1 1} {1 2}] [{1 1}]" {
				t.Errorf("handled: %s", got)
			}
			if store.Position("bad", "state") != (devicestate.Position{Epoch: 1, Sequence: 1}) {
				t.Error("the position did not move past the dead event: it would come again")
			}
		})
	}
}

func TestHandler_OutageIsWaitedOutAndSpendsNothing(t *testing.T) {
	t.Parallel()
	attempts := 0
	cfg := feedConfig()
	cfg.Poison = consumer.DeadLetterTo("dead")
	cfg.Handler = func(context.Context, []*consumer.Delivery) error {
		if attempts++; attempts < 20 { // far above MaxAttempts
			return fmt.Errorf("call service: %w", consumer.Outage(errors.New("down")))
		}
		return nil
	}
	dead, err := newConsumer(t, cfg).Feed(t.Context(), offsets(feedEvent("a", 1))...)
	if err != nil || len(dead) != 0 || attempts != 20 {
		t.Fatalf("error %v, %d dead, %d attempts", err, len(dead), attempts)
	}
}

func TestHandler_FailsForGood_StopReturnsItsError(t *testing.T) {
	t.Parallel()
	cause := errors.New("no")
	cfg := feedConfig()
	cfg.Handler = func(context.Context, []*consumer.Delivery) error { return cause }
	_, err := newConsumer(t, cfg).Feed(t.Context(), offsets(feedEvent("a", 1))...)
	var poison *consumer.PoisonError
	if !errors.As(err, &poison) || poison.Reason != "handler" || !errors.Is(err, cause) {
		t.Fatalf("error %v, want a PoisonError with the handler's", err)
	}
}

// TestHole_IsReportedWithExactRangesAndCause_C2: loss, a superseded stretch and a dead letter, alone and mixed.
func TestHole_IsReportedWithExactRangesAndCause_C2(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		skipped   string
		compacted bool
		lost      string
		counts    map[string]float64
	}{
		"lost":                 {"", false, "[{3 9}]", map[string]float64{"loss": 7}},
		"superseded":           {"3-9:superseded", false, "[]", map[string]float64{"superseded": 7}},
		"dead letters":         {"3:dead,4-9:dead", false, "[]", map[string]float64{"dead": 7}},
		"mixed":                {"3-4:superseded,6:dead", false, "[{5 5} {7 9}]", map[string]float64{"superseded": 2, "dead": 1, "loss": 4}},
		"wider than the hole":  {"1-20:superseded", false, "[]", map[string]float64{"superseded": 7}},
		"header of other ones": {"11-12:superseded", false, "[{3 9}]", map[string]float64{"loss": 7}},
		"unreadable header":    {"3-9", false, "[{3 9}]", map[string]float64{"loss": 7}},
		"compacted topic":      {"", true, "[]", map[string]float64{"compacted": 7}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var holes []consumer.Hole
			cfg := feedConfig()
			reg := prometheus.NewRegistry()
			cfg.Registerer, cfg.Compacted = reg, test.compacted
			cfg.OnHole = func(h consumer.Hole) { holes = append(holes, h) }
			first := feedEvent("a", 2)
			after := feedEvent("a", 10, consumertest.Skipped(test.skipped))
			if _, err := newConsumer(t, cfg).Feed(t.Context(), offsets(first, feedEvent("b", 70), after, feedEvent("a", 11), feedEvent("b", 71))...); err != nil {
				t.Fatal(err)
			}
			if len(holes) != 1 {
				t.Fatalf("holes: %+v, want one", holes)
			}
			h := holes[0]
			if h.Device != "a" || h.Stream != "state" || h.Hub != "hub-1" || h.Epoch != 1 || h.Missing != (devicestate.Range{From: 3, To: 9}) || h.Offset != 2 {
				t.Errorf("hole: %+v", h)
			}
			if got := fmt.Sprint(h.Lost); got != test.lost || h.Compacted != test.compacted {
				t.Errorf("lost: %s, want %s", got, test.lost)
			}
			for _, cause := range []string{"loss", "superseded", "dead", "compacted"} {
				if got := metric(t, reg, "consumer_missing_events_total", cause); got != test.counts[cause] {
					t.Errorf("missing by %s: %v, want %v", cause, got, test.counts[cause])
				}
			}
		})
	}
}

func TestMetrics_CountEveryVerdict(t *testing.T) {
	t.Parallel()
	cfg := feedConfig()
	reg := prometheus.NewRegistry()
	cfg.Registerer = reg
	observed := map[string]float64{}
	cfg.Observe = func(ds []*consumer.Delivery) {
		for _, d := range ds {
			observed[d.Verdict.Outcome.String()]++
		}
	}
	next := consumertest.Record(feedTopicName, consumertest.Event("a", 2, 1))
	if _, err := newConsumer(t, cfg).Feed(t.Context(), offsets(feedEvent("a", 4), feedEvent("a", 5), feedEvent("a", 5), feedEvent("a", 8),
		feedEvent("a", 3), feedEvent("a", 9), next)...); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"baseline": 1, "apply": 2, "duplicate": 1, "hole": 1, "late": 1, "new_epoch": 1}
	if !maps.Equal(observed, want) {
		t.Errorf("observed %v, want %v", observed, want)
	}
	for verdict, n := range want {
		if got := metric(t, reg, "consumer_events_total", verdict); got != n {
			t.Errorf("consumer_events_total of %s is %v, want %v", verdict, got, n)
		}
	}
}

func TestNew_ReturnsAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := consumer.New(consumer.Config{
		MaxBatch: 9999, Topic: "x", Poison: consumer.DeadLetterTo("x"), DrainTimeout: time.Hour, CommitInterval: time.Millisecond,
		Retry: consumer.Retry{MinDelay: time.Minute, MaxAttempts: -1}, Start: 7,
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"Brokers", "Group", "Store", "MaxBatch", "Poison", "DrainTimeout", "CommitInterval", "Retry delays", "MaxAttempts", "Start"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
}
