package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/schema"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func topicFlags() []string {
	s := testenv.Settings()
	return []string{"--cell", s.Cell, "--buckets", fmt.Sprint(s.Buckets), "--kafka-topic", s.Topic, "--topic-partitions", fmt.Sprint(s.TopicPartitions)}
}

func TestMigrate_FromNothingAndAgain(t *testing.T) {
	t.Parallel()
	url := testenv.PostgresRaw(t)
	cluster := testenv.FakeKafka(t)
	args := append([]string{"migrate", "--database-url", url, "--kafka-brokers", strings.Join(cluster.ListenAddrs(), ",")}, topicFlags()...)
	golden(t, "migrate.txt", strings.ReplaceAll(must(t, args...), fmt.Sprint("version ", schema.Latest()), "version N"))
	if again := must(t, args...); !strings.Contains(again, "topic: device-state found, 64 partitions") {
		t.Errorf("second time:\n%s", again)
	}
	args[slices.Index(args, "--topic-partitions")+1] = "32"
	if _, err := relay(t.Context(), args...); err == nil || !strings.Contains(err.Error(), "settings are fixed once recorded") {
		t.Errorf("another partition count: %v", err)
	}
}

func TestMigrate_RefusesAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := relay(t.Context(), "migrate", "--database-url", "postgres://u:s3cret@127.0.0.1:1/none", "--buckets", "5000",
		"--topic-partitions", "7", "--kafka-brokers", "nonsense", "--kafka-sasl-mechanism", "NTLM")
	var refused *ops.ConfigError
	if !errors.As(err, &refused) || len(refused.Problems) < 4 {
		t.Fatalf("error %v", err)
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Error("the password is shown")
	}
}

// TestRun_PublishesAndIsReadyOnlyWhenClaiming is the daemon as an operator starts it: not ready before it holds its
// buckets, then everything committed arrives on the topic, and SIGTERM releases all buckets.
func TestRun_PublishesAndIsReadyOnlyWhenClaiming(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	cluster := testenv.FakeKafka(t, kfake.SeedTopics(int32(testenv.Settings().TopicPartitions), testenv.Settings().Topic))
	conn := connect(t, url)
	addr := testenv.FreeAddr(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { // ended below
		out, err := relay(ctx, "run", "--database-url", url, "--kafka-brokers", strings.Join(cluster.ListenAddrs(), ","), "--instance", "r1", "--admin-addr", addr)
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		ended <- err
	}()
	eventually(t, 20*time.Second, func() error { return readyz(addr) })
	var owned int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM outbox_bucket WHERE owner LIKE 'r1%'").Scan(&owned); err != nil || owned != 64 {
		t.Errorf("ready with %d buckets, %v", owned, err)
	}
	appendEvents(t, conn, event{device: "d1", sequence: 1}, event{device: "d2", sequence: 1}, event{device: "d1", sequence: 2})
	got := consume(t, cluster.ListenAddrs(), testenv.Settings().Topic, 3)
	if d1 := got["d1"]; len(d1) != 2 || header(d1[0], "ce_sequence") != "0000000000000000001" || header(d1[1], "ce_sequence") != "0000000000000000002" {
		t.Errorf("records of d1: %v", d1)
	}
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM outbox_bucket WHERE owner IS NOT NULL").Scan(&owned); err != nil || owned != 0 {
		t.Errorf("%d buckets are still owned after the stop, %v", owned, err)
	}
}

func TestRun_RefusesBadConfigurationBeforeItConnects(t *testing.T) {
	t.Parallel()
	_, err := relay(t.Context(), "run", "--database-url", "postgres://127.0.0.1:1/none", "--kafka-brokers", "", "--on-dead", "panic",
		"--lease-ttl", "10ms", "--retain-dead", "1h", "--partition-interval", "7s")
	var refused *ops.ConfigError
	if !errors.As(err, &refused) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"kafka_brokers", "on_dead", "ttl", "retain_dead", "Interval"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in\n%v", want, err)
		}
	}
}

func TestRun_RefusesADatabaseThatIsNotMigrated(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := relay(ctx, "run", "--database-url", testenv.PostgresRaw(t), "--kafka-brokers", "127.0.0.1:1", "--admin-addr", "")
	if err == nil || !strings.Contains(err.Error(), "relay migrate") {
		t.Errorf("error %v", err)
	}
}

func readyz(addr string) error {
	resp, err := http.Get("http://" + addr + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s: %s", resp.Status, body)
	}
	return nil
}

// consume reads n records of topic from its beginning and groups them by key, in order.
func consume(t *testing.T, brokers []string, topic string, n int) map[string][]*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got := map[string][]*kgo.Record{}
	for n > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d records are missing; have %d keys", n, len(got))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got[string(r.Key)] = append(got[string(r.Key)], r)
			n--
		})
	}
	return got
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

func TestConfig_ShowsAllAndNoSecret(t *testing.T) {
	t.Parallel()
	out := must(t, "config", "--database-url", "postgres://u:s3cret@127.0.0.1/x", "--kafka-brokers", "b:9092", "--kafka-username", "u",
		"--kafka-password", "hunter2", "--on-dead", "hold", "--instance", "r1")
	if strings.Contains(out, "s3cret") || strings.Contains(out, "hunter2") {
		t.Error("a secret is shown")
	}
	golden(t, "config.txt", out)
	if _, err := relay(t.Context(), "config", "--database-url", "postgres://127.0.0.1/x", "--on-dead", "panic"); err == nil || !strings.Contains(err.Error(), "on_dead") {
		t.Errorf("a refused configuration: %v", err)
	}
}
