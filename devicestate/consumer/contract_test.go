package consumer_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/devicestate/consumer/consumertest"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/franz-go/pkg/kgo"
)

// publishedSamples are the records of the frozen contract, as they stand on the topic.
func publishedSamples(t testing.TB) map[string]*kgo.Record {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "testdata", "events", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("published samples: %v, %v", files, err)
	}
	samples := map[string]*kgo.Record{}
	for _, file := range files {
		value, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		headers, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".headers")
		if err != nil {
			t.Fatal(err)
		}
		r := &kgo.Record{Topic: feedTopicName, Value: value}
		for line := range strings.Lines(string(headers)) {
			name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(text)})
		}
		r.Key = []byte(recordHeader(r, "ce_partitionkey"))
		samples[strings.TrimSuffix(filepath.Base(file), ".json")] = r
	}
	return samples
}

func TestContract_ConsumerReadsEveryPublishedSample(t *testing.T) {
	t.Parallel()
	for name, r := range publishedSamples(t) {
		d, err := consumer.Decode(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d.Event.Device != recordHeader(r, "ce_subject") || d.CommittedAt.IsZero() || d.Cell() != "cell-1" || d.Bucket() != 17 ||
			d.OutboxPosition() != 123456789 || d.Traceparent() != recordHeader(r, "ce_traceparent") || d.Replay != recordHeader(r, "ce_replay") {
			t.Errorf("%s: %+v", name, d)
		}
		if name == "skipped" && fmt.Sprint(d.Skips) != "[{{41 57} superseded} {{58 58} dead}]" {
			t.Errorf("%s: skips %v", name, d.Skips)
		}
	}
}

// TestContract_TestKitBuildsWhatIsPublished: a team that tests with consumertest.Record tests with the contract.
func TestContract_TestKitBuildsWhatIsPublished(t *testing.T) {
	t.Parallel()
	for name, want := range publishedSamples(t) {
		event, err := devicestate.DecodeEvent(want.Value)
		if err != nil {
			t.Fatal(err)
		}
		got := consumertest.Record(feedTopicName, event)
		if !bytes.Equal(got.Value, want.Value) || !bytes.Equal(got.Key, want.Key) {
			t.Errorf("%s: key %q, value %s", name, got.Key, got.Value)
		}
		for _, h := range want.Headers {
			switch h.Key {
			case "ce_cell", "ce_bucket", "ce_position", "ce_committedat", "ce_traceparent", "ce_correlationid", "ce_causationid", "ce_skipped", "ce_replay":
				continue // of the way, not of the event
			}
			if text := recordHeader(got, h.Key); text != string(h.Value) {
				t.Errorf("%s: %s is %q, want %q", name, h.Key, text, h.Value)
			}
		}
	}
}

func eventSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "testdata", "device-state-changed.v1.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func validateJSON(t *testing.T, schema *jsonschema.Schema, value []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(v)
}

func TestContract_SchemaAcceptsEveryPublishedSampleAndAddedMembers(t *testing.T) {
	t.Parallel()
	schema := eventSchema(t)
	for name, r := range publishedSamples(t) {
		if err := validateJSON(t, schema, r.Value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		newer := strings.Replace(string(r.Value), `"epoch":`, `"added":{"x":1},"epoch":`, 1)
		if err := validateJSON(t, schema, []byte(newer)); err != nil {
			t.Errorf("%s with a member added by a later writer: %v", name, err)
		}
	}
}

// TestContract_SchemaRefusesWhatIsNoEvent: each member that is taken out or given another type is noticed.
func TestContract_SchemaRefusesWhatIsNoEvent(t *testing.T) {
	t.Parallel()
	schema := eventSchema(t)
	good := string(publishedSamples(t)["full"].Value)
	for _, swap := range [][2]string{
		{`"message_id":"019d372b-3a7b-7def`, `"message_id":"019d372b-3a7b-4def`},
		{`"device_id":"acme/A-001"`, `"device_id":"acme/"`},
		{`"hub_id":"dock-1"`, `"hub_id":"dock 1"`},
		{`"stream":"state"`, `"stream":null`},
		{`"epoch":3`, `"epoch":0`},
		{`"sequence":4711`, `"sequence":"4711"`},
		{`"occurred_at":"2026-03-29T00:59:59.900000Z"`, `"occurred_at":"2026-03-29T00:59:59.9Z"`},
		{`"received_at":"2026-03-29T01:00:00.123456Z"`, `"received_at":null`},
		{`"counter":17`, `"counter":-1`},
		{`"boot":2`, `"boot":2.5`},
		{`"marks":["reboot",`, `"marks":["reboot","reboot",`},
		{`"late":2,`, ``},
		{`"missed":1`, `"missed":null`},
	} {
		changed := strings.Replace(good, swap[0], swap[1], 1)
		if changed == good {
			t.Fatalf("the sample has no %s", swap[0])
		}
		if err := validateJSON(t, schema, []byte(changed)); err == nil {
			t.Errorf("%s is accepted", swap[1])
		}
	}
	for _, member := range []string{"message_id", "device_id", "hub_id", "stream", "epoch", "sequence", "occurred_at", "received_at", "counter", "boot", "marks", "totals", "state"} {
		changed := strings.Replace(good, `"`+member+`":`, `"x_`+member+`":`, 1)
		if err := validateJSON(t, schema, []byte(changed)); err == nil {
			t.Errorf("an event without %s is accepted", member)
		}
	}
}
