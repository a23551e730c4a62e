package consumer_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestContract_TheRelayPublishesTheSamples: what a real relay sends, of rows that ingest's own code appended, is the frozen
// sample, byte for byte and header for header. Only what tells the way (cell, bucket, position, time of commit) may differ.
func TestContract_TheRelayPublishesTheSamples(t *testing.T) {
	t.Parallel()
	samples := publishedSamples(t)
	order := []string{"replayed", "skipped", "full", "minimal", "largest"} // of one stream: as they would be emitted
	if len(order) != len(samples) {
		t.Fatalf("%d samples, the test knows %d", len(samples), len(order))
	}
	url, brokers := testenv.Postgres(t), testenv.FakeKafka(t).ListenAddrs()
	name := testenv.Topic(t, brokers, testenv.Settings().TopicPartitions)
	appendSamples(t, url, samples, order)
	runRelay(t, url, brokers, name)

	reader, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(name))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	got := map[string]*kgo.Record{}
	for len(got) < len(samples) {
		for _, r := range reader.PollFetches(t.Context()).Records() {
			got[recordHeader(r, "ce_id")] = r
		}
	}
	for name, want := range samples {
		compareRecord(t, name, got[recordHeader(want, "ce_id")], want)
	}
}

func appendSamples(t *testing.T, url string, samples map[string]*kgo.Record, order []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), `SELECT ensure_partition('outbox', clock_timestamp())`); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, name := range order {
		keys = append(keys, string(samples[name].Key))
	}
	var locks, rows pgx.Batch
	txn := outbox.Begin(&locks, testenv.Settings().Buckets, keys)
	if err := tx.SendBatch(t.Context(), &locks).Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range order {
		if err := txn.Append(messageOf(t, samples[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := txn.Queue(&rows); err != nil {
		t.Fatal(err)
	}
	if err := tx.SendBatch(t.Context(), &rows).Close(); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func messageOf(t *testing.T, r *kgo.Record) *outbox.Message {
	t.Helper()
	e, err := devicestate.DecodeEvent(r.Value)
	if err != nil {
		t.Fatal(err)
	}
	return &outbox.Message{
		ID: e.MessageID, AggregateType: devicestate.AggregateType, AggregateID: e.Device, EventType: devicestate.EventType,
		SchemaVersion: devicestate.SchemaVersion, Stream: e.Stream, Epoch: e.Epoch, Sequence: e.Sequence, Source: devicestate.Source(e.Hub),
		Traceparent: recordHeader(r, "ce_traceparent"), CorrelationID: recordHeader(r, "ce_correlationid"),
		CausationID: recordHeader(r, "ce_causationid"), OccurredAt: e.OccurredAt, Payload: r.Value,
	}
}

func runRelay(t *testing.T, url string, brokers []string, topic string) {
	t.Helper()
	s := testenv.Settings()
	relay, err := outbox.New(outbox.Config{Instance: "contract", Cell: s.Cell, Buckets: s.Buckets, Topic: topic, TopicPartitions: s.TopicPartitions},
		outbox.Deps{
			Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, url) },
			Kafka:   []kgo.Opt{kgo.SeedBrokers(brokers...)},
		})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func compareRecord(t *testing.T, name string, got, want *kgo.Record) {
	t.Helper()
	if got == nil {
		t.Errorf("%s was not published under its id", name)
		return
	}
	if string(got.Key) != string(want.Key) || string(got.Value) != string(want.Value) {
		t.Errorf("%s: key %q, value %s", name, got.Key, got.Value)
	}
	way := map[string]*regexp.Regexp{
		"ce_cell": regexp.MustCompile(`^test$`), "ce_bucket": regexp.MustCompile(`^\d+$`), "ce_position": regexp.MustCompile(`^\d+$`),
		"ce_committedat": regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`),
	}
	i := 0
	for _, h := range want.Headers {
		if h.Key == "ce_skipped" || h.Key == "ce_replay" {
			continue // of a published past that this database does not have
		}
		if i >= len(got.Headers) || got.Headers[i].Key != h.Key {
			t.Fatalf("%s: header %d is not %s: %v", name, i, h.Key, got.Headers)
		}
		text := string(got.Headers[i].Value)
		if pattern, ok := way[h.Key]; ok && !pattern.MatchString(text) || !ok && text != string(h.Value) {
			t.Errorf("%s: %s is %q, the sample says %q", name, h.Key, text, h.Value)
		}
		i++
	}
	if i != len(got.Headers) {
		t.Errorf("%s: more headers than the sample has: %v. A new header needs a new sample", name, got.Headers[i:])
	}
}
