package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// deadWorld has two devices whose events 1..3 are published, and dead letters d1/1, d1/2 (newer ones were published) and
// d2/3 (nothing newer was).
func deadWorld(t *testing.T) (url string, conn *pgx.Conn) {
	t.Helper()
	url = testenv.Postgres(t)
	conn = connect(t, url)
	for sequence := int64(1); sequence <= 3; sequence++ {
		appendEvents(t, conn, event{device: "d1", sequence: sequence}, event{device: "d2", sequence: sequence})
	}
	exec(t, conn, "UPDATE outbox_bucket b SET cursor = o.position FROM (SELECT bucket, max(position) AS position FROM outbox GROUP BY bucket) o WHERE o.bucket = b.bucket")
	kill(t, conn, "d1", 1, "dead", "MESSAGE_TOO_LARGE")
	kill(t, conn, "d1", 2, "dead", "INVALID_RECORD")
	kill(t, conn, "d2", 3, "dead", "MESSAGE_TOO_LARGE")
	return url, conn
}

func fakeTopic(t *testing.T) []string {
	t.Helper()
	return testenv.FakeKafka(t, kfake.SeedTopics(int32(testenv.Settings().TopicPartitions), testenv.Settings().Topic)).ListenAddrs()
}

// planned makes a plan of all dead letters as anna and returns it.
func planned(t *testing.T, url string, more ...string) outbox.ReplayPlan {
	t.Helper()
	var out struct{ Plan outbox.ReplayPlan }
	args := append([]string{"replay", "plan", "--database-url", url, "--actor", "anna", "--reason", "limit raised", "--json"}, more...)
	if err := json.Unmarshal([]byte(must(t, args...)), &out); err != nil {
		t.Fatal(err)
	}
	return out.Plan
}

func TestReplay_GoldenWay(t *testing.T) {
	t.Parallel()
	url, conn := deadWorld(t)
	brokers := fakeTopic(t)
	golden(t, "dead_list.txt", must(t, "dead", "list", "--database-url", url))
	golden(t, "dead_list.json", must(t, "dead", "list", "--database-url", url, "--code", "INVALID_RECORD", "--json"))
	golden(t, "dead_show.txt", must(t, "dead", "show", letterPosition(t, conn, "d1", 2), "--database-url", url))
	golden(t, "replay_plan.txt", must(t, "replay", "plan", "--database-url", url, "--actor", "anna", "--reason", "limit raised"))

	p := planned(t, url)
	must(t, "replay", "approve", p.ID.String(), "--digest", p.Digest, "--database-url", url, "--actor", "ben", "--reason", "looks right")
	out := must(t, "replay", "run", p.ID.String(), "--database-url", url, "--actor", "anna", "--reason", "after hours", "--kafka-brokers", brokers[0], "--rate", "1000")
	if !strings.Contains(out, "3 sent, 0 releasing, 0 changed, 0 failed, 0 skipped, 0 left") {
		t.Errorf("run printed %s", out)
	}
	golden(t, "replay_show.txt", must(t, "replay", "show", p.ID.String(), "--database-url", url))
	got := consume(t, brokers, testenv.Settings().Topic, 3)
	if d1 := got["d1"]; len(d1) != 2 || string(d1[0].Value) != `{"device_id":"d1","sequence":1}` || header(d1[1], "ce_sequence") != "0000000000000000002" {
		t.Errorf("d1 received %v", d1)
	}
	if r := got["d2"][0]; header(r, "ce_replay") != p.ID.String() || header(r, "ce_id") != messageOf(p, "d2") || r.Partition != int32(bucketOf("d2")) {
		t.Errorf("d2 received %v on partition %d", r.Headers, r.Partition)
	}
	var audited []string
	rows, err := conn.Query(t.Context(), "SELECT actor || ' ' || action FROM audit WHERE subject = 'replay_plan ' || $1::text ORDER BY id", p.ID.String())
	if err == nil {
		audited, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if want := "anna replay.plan,ben replay.approve,anna replay.run,anna replay.done"; err != nil || strings.Join(audited, ",") != want {
		t.Errorf("audit: %v, %v; want %s", audited, err, want)
	}
}

func letterPosition(t *testing.T, conn *pgx.Conn, device string, sequence int64) string {
	t.Helper()
	var position int64
	if err := conn.QueryRow(t.Context(), "SELECT position FROM outbox_dead WHERE aggregate_id = $1 AND sequence = $2", device, sequence).Scan(&position); err != nil {
		t.Fatal(err)
	}
	return strconv.FormatInt(position, 10)
}

func TestReplay_FourEyes(t *testing.T) {
	t.Parallel()
	url, conn := deadWorld(t)
	p := planned(t, url)
	approve := func(actor, digest string) error {
		_, err := relay(t.Context(), "replay", "approve", p.ID.String(), "--digest", digest, "--database-url", url, "--actor", actor, "--reason", "ok")
		return err
	}
	for why, err := range map[string]error{
		"somebody else must approve": approve("anna", p.Digest),
		"digest is not that":         approve("ben", strings.Repeat("0", 64)),
		"digest is not that of":      approve("ben", p.Digest[:11]),
	} {
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("want %q, got %v", why, err)
		}
	}
	if _, err := conn.Exec(t.Context(), "UPDATE replay_plan SET state = 'approved', approved_by = 'anna' WHERE id = $1", p.ID); err == nil {
		t.Error("the table itself lets a planner approve")
	}
	if _, err := relay(t.Context(), "replay", "run", p.ID.String(), "--database-url", url, "--reason", "now", "--kafka-brokers", "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "only an approved one") {
		t.Errorf("a plan nobody approved: %v", err)
	}
	if err := approve("ben", p.Digest[:12]); err != nil {
		t.Error(err)
	}
	if err := approve("carl", p.Digest); err == nil || !strings.Contains(err.Error(), "approved already") {
		t.Errorf("approved twice: %v", err)
	}
}

// TestReplay_WhatChangedSinceTheApprovalIsNotSent: somebody discards a planned letter; a plan is for what was approved.
func TestReplay_WhatChangedSinceTheApprovalIsNotSent(t *testing.T) {
	t.Parallel()
	url, conn := deadWorld(t)
	stale := planned(t, url)
	exec(t, conn, "UPDATE outbox_dead SET payload = 'tampered' WHERE aggregate_id = 'd2'")
	if _, err := relay(t.Context(), "replay", "approve", stale.ID.String(), "--digest", stale.Digest, "--database-url", url, "--actor", "ben", "--reason", "ok"); err == nil || !strings.Contains(err.Error(), "make a new plan") {
		t.Errorf("approved a plan of other bytes: %v", err)
	}
	p := approved(t, url)
	brokers := fakeTopic(t)
	must(t, "discard", letterPosition(t, conn, "d1", 2), "--database-url", url, "--reason", "useless", "--yes")
	if _, err := relay(t.Context(), "replay", "run", p.ID.String(), "--database-url", url, "--reason", "now", "--kafka-brokers", brokers[0]); err == nil || !strings.Contains(err.Error(), "make a new plan") {
		t.Errorf("ran a plan whose letters were decided otherwise: %v", err)
	}
}

func approved(t *testing.T, url string) outbox.ReplayPlan {
	t.Helper()
	p := planned(t, url)
	must(t, "replay", "approve", p.ID.String(), "--digest", p.Digest, "--database-url", url, "--actor", "ben", "--reason", "ok")
	return p
}

// TestReplay_AnOutageLeavesTheRestForTheNextRun_O6: the broker is away, nothing is failed; the next run sends it.
func TestReplay_AnOutageLeavesTheRestForTheNextRun_O6(t *testing.T) {
	t.Parallel()
	url, conn := deadWorld(t)
	p := approved(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	out, err := relay(ctx, "replay", "run", p.ID.String(), "--database-url", url, "--reason", "now", "--kafka-brokers", testenv.FreeAddr(t))
	if err == nil || !strings.Contains(out, "0 sent") || !strings.Contains(out, "3 left") {
		t.Fatalf("%v\n%s", err, out)
	}
	var dead int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM outbox_dead WHERE state = 'dead'").Scan(&dead); err != nil || dead != 3 {
		t.Fatalf("%d still dead, %v", dead, err)
	}
	out = must(t, "replay", "run", p.ID.String(), "--database-url", url, "--reason", "again", "--kafka-brokers", fakeTopic(t)[0])
	if !strings.Contains(out, "3 sent") {
		t.Error(out)
	}
}

// TestReplay_ARefusedEventStopsItsKeyOnly: d1/1 is refused again, so d1/2 is not sent past it; d2 goes on.
func TestReplay_ARefusedEventStopsItsKeyOnly(t *testing.T) {
	t.Parallel()
	url, conn := deadWorld(t)
	exec(t, conn, "UPDATE outbox_dead SET payload = convert_to(string_agg, 'UTF8') FROM (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) i) x WHERE aggregate_id = 'd1' AND sequence = 1")
	cluster := testenv.FakeKafka(t, kfake.SeedTopics(int32(testenv.Settings().TopicPartitions), testenv.Settings().Topic))
	setTopicLimit(t, cluster.ListenAddrs(), testenv.Settings().Topic, 2_000)
	p := approved(t, url)
	out := must(t, "replay", "run", p.ID.String(), "--database-url", url, "--reason", "now", "--kafka-brokers", cluster.ListenAddrs()[0])
	if !strings.Contains(out, "1 sent, 0 releasing, 0 changed, 1 failed, 1 skipped") {
		t.Error(out)
	}
	if show := must(t, "replay", "show", p.ID.String(), "--database-url", url); !strings.Contains(show, "failed: MESSAGE_TOO_LARGE") || !strings.Contains(show, "skipped: an earlier event of its key failed") {
		t.Error(show)
	}
	var states string
	if err := conn.QueryRow(t.Context(), "SELECT string_agg(aggregate_id || '/' || sequence || ' ' || state, ', ' ORDER BY position) FROM outbox_dead").Scan(&states); err != nil || states != "d1/1 dead, d1/2 dead, d2/3 replayed" {
		t.Errorf("letters %s, %v", states, err)
	}
}

func setTopicLimit(t *testing.T, brokers []string, topic string, bytes int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	limit := strconv.Itoa(bytes)
	responses, err := kadm.NewClient(client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, topic)
	if err != nil || responses[0].Err != nil {
		t.Fatal(err, responses)
	}
}

// TestReplay_AHeadWithParkedRowsIsOnlyMarked: what waits behind a dead head is the bucket owner's to publish, never the
// command line's, which could overtake it.
func TestReplay_AHeadWithParkedRowsIsOnlyMarked_O2(t *testing.T) {
	t.Parallel()
	url, conn := deadWorld(t)
	exec(t, conn, "UPDATE outbox_dead SET parks = true WHERE sequence IN (1, 3)")
	exec(t, conn, "UPDATE outbox_dead SET state = 'held' WHERE sequence = 2")
	p := approved(t, url)
	out := must(t, "replay", "run", p.ID.String(), "--database-url", url, "--reason", "now", "--kafka-brokers", testenv.FreeAddr(t))
	if !strings.Contains(out, "0 sent, 2 releasing") {
		t.Error(out)
	}
	exec(t, conn, "UPDATE outbox_dead SET state = 'dead', decision = NULL WHERE aggregate_id = 'd2'")
	must(t, "discard", letterPosition(t, conn, "d2", 3), "--database-url", url, "--reason", "useless", "--yes")
	var states string
	if err := conn.QueryRow(t.Context(), "SELECT string_agg(aggregate_id || '/' || sequence || ' ' || state || ' ' || coalesce(split_part(decision, ' ', 1), '-'), ', ' ORDER BY position) FROM outbox_dead").Scan(&states); err != nil ||
		states != "d1/1 releasing replay, d1/2 held -, d2/3 releasing discard" {
		t.Errorf("letters %s, %v", states, err)
	}
}

func TestDiscard_IsADryRunAndNeedsAReason(t *testing.T) {
	t.Parallel()
	url, conn := deadWorld(t)
	position := letterPosition(t, conn, "d1", 1)
	if _, err := relay(t.Context(), "discard", position, "--database-url", url, "--yes"); err == nil || !strings.Contains(err.Error(), "--reason") {
		t.Errorf("without a reason: %v", err)
	}
	golden(t, "discard.txt", must(t, "discard", position, "--database-url", url, "--reason", "useless", "--actor", "anna"))
	golden(t, "discard_yes.txt", must(t, "discard", position, "--database-url", url, "--reason", "useless", "--actor", "anna", "--yes"))
	if _, err := relay(t.Context(), "discard", position, "--database-url", url, "--reason", "again", "--yes"); err == nil || !strings.Contains(err.Error(), "not an undecided dead letter") {
		t.Errorf("discarded twice: %v", err)
	}
	var login, reason string
	if err := conn.QueryRow(t.Context(), "SELECT db_user, reason FROM audit WHERE action = 'discard' AND actor = 'anna'").Scan(&login, &reason); err != nil || login == "" || reason != "useless" {
		t.Errorf("audit %s %s %v", login, reason, err)
	}
}

func TestDeadCommands_ExplainUsageErrors(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--since":                      {"dead", "list", "--since", "yesterday"},
		"--limit 0":                    {"dead", "list", "--limit", "0"},
		`position "x"`:                 {"dead", "show", "x"},
		"--reason must be given":       {"replay", "plan"},
		"--digest and --reason must":   {"replay", "approve", "3f8a8c5e-54a5-4a0c-8d4a-0b8f8c1f7a11"},
		`plan "7": must be the id`:     {"replay", "show", "7"},
		"database_url = \"\": is req":  {"status"},
		"accepts 1 arg(s), received 0": {"replay", "run"},
	} {
		_, err := relay(t.Context(), args...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("relay %v: %v, want %q", args, err, want)
		}
	}
	url := testenv.Postgres(t)
	if _, err := relay(t.Context(), "replay", "plan", "--database-url", url, "--reason", "r"); !errors.Is(err, outbox.ErrNothingToReplay) {
		t.Errorf("nothing to plan: %v", err)
	}
	var usage *ops.ConfigError
	if _, err := relay(t.Context(), "status"); !errors.As(err, &usage) {
		t.Errorf("no database: %v", err)
	}
}

// TestReplay_PoisonToGate is the whole way on a real Kafka: a record over the topic's limit dies while its neighbours
// flow, the limit is raised, the replay is planned, approved and run, and two consumers judge it by their gates.
func TestReplay_PoisonToGate_O5(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	conn := connect(t, url)
	brokers := testenv.Kafka(t)
	topic := testenv.Topic(t, brokers, testenv.Settings().TopicPartitions)
	exec(t, conn, "UPDATE hubstate_settings SET topic = $1", topic)
	setTopicLimit(t, brokers, topic, 4_000)
	stop := startRelay(t, url, brokers)
	poison := func(device string, sequence int64) event {
		return event{device: device, sequence: sequence, payload: fmt.Sprintf(`{"device_id":%q,"x":%q}`, device, noise(9_000))}
	}
	appendEvents(t, conn, event{device: "d1", sequence: 1}, poison("d1", 2), event{device: "d1", sequence: 3}, event{device: "d2", sequence: 1}, poison("d2", 2))
	eventually(t, time.Minute, func() error {
		var dead int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM outbox_dead WHERE state = 'dead' AND error_code = 'MESSAGE_TOO_LARGE'").Scan(&dead)
		if err == nil && dead != 2 {
			err = fmt.Errorf("%d dead letters, want 2", dead)
		}
		return err
	})
	consume(t, brokers, topic, 3)
	setTopicLimit(t, brokers, topic, 1<<20)
	p := approved(t, url)
	if len(p.Items) != 2 {
		t.Fatalf("plan %+v", p.Items)
	}
	forecasts := map[string]string{}
	for _, it := range p.Items {
		forecasts[it.AggregateID] = it.Forecast
	}
	if forecasts["d1"] != outbox.ForecastDropped || forecasts["d2"] != outbox.ForecastApplied {
		t.Errorf("forecasts %v", forecasts)
	}
	must(t, "replay", "run", p.ID.String(), "--database-url", url, "--reason", "now", "--kafka-brokers", strings.Join(brokers, ","))
	got := consume(t, brokers, topic, 5)
	if verdicts := gated(t, got["d1"]); verdicts != "1 baseline, 3 hole, 2 late" {
		t.Errorf("d1: %s", verdicts)
	}
	if verdicts := gated(t, got["d2"]); verdicts != "1 baseline, 2 apply" {
		t.Errorf("d2: %s", verdicts)
	}
	stop()
}

func noise(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + rand.IntN(64))
	}
	return strings.NewReplacer(`\`, "_", `"`, "_").Replace(string(b))
}

// gated is a consumer's gate over the records of one device.
func gated(t *testing.T, records []*kgo.Record) string {
	t.Helper()
	var at devicestate.Position
	var verdicts []string
	for _, r := range records {
		sequence, err := strconv.ParseInt(header(r, "ce_sequence"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		skips, err := devicestate.ParseSkips(header(r, "ce_skipped"))
		if err != nil {
			t.Fatal(err)
		}
		next := devicestate.Position{Epoch: 1, Sequence: sequence}
		v := at.Check(next, skips)
		if v.Applies() {
			at = next
		}
		if len(v.Lost) > 0 {
			t.Errorf("the gate counts loss: %v", v.Lost)
		}
		verdicts = append(verdicts, fmt.Sprint(sequence, " ", v.Outcome))
	}
	return strings.Join(verdicts, ", ")
}

// startRelay runs `relay run` until the returned function is called or the test ends.
func startRelay(t *testing.T, url string, brokers []string, flags ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	addr := testenv.FreeAddr(t)
	root := newRoot()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetOut(t.Output())
	root.SetErr(t.Output())
	root.SetArgs(append([]string{"run", "--database-url", url, "--kafka-brokers", strings.Join(brokers, ","), "--instance", "r1", "--admin-addr", addr}, flags...))
	go func() { // waited for by stop
		ended <- root.ExecuteContext(ctx)
	}()
	eventually(t, 30*time.Second, func() error { return readyz(addr) })
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(stop) // before the database goes
	return stop
}

func messageOf(p outbox.ReplayPlan, device string) string {
	for _, it := range p.Items {
		if it.AggregateID == device {
			return it.MessageID.String()
		}
	}
	return ""
}

// TestReplay_TheRecordIsTheRelaysOwn: key, value, partition and every header of a replay are what the relay itself sends for
// the row, plus ce_replay.
func TestReplay_TheRecordIsTheRelaysOwn(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	conn := connect(t, url)
	brokers := fakeTopic(t)
	stop := startRelay(t, url, brokers)
	appendEvents(t, conn, event{device: "m/1", sequence: 1, full: true})
	published(t, conn)
	stop()
	kill(t, conn, "m/1", 1, "dead", "INVALID_RECORD")
	p := approved(t, url)
	must(t, "replay", "run", p.ID.String(), "--database-url", url, "--reason", "now", "--kafka-brokers", brokers[0])
	records := consume(t, brokers, testenv.Settings().Topic, 2)["m/1"]
	first, again := records[0], records[1]
	if first.Partition != again.Partition || string(first.Value) != string(again.Value) || len(first.Headers) < 18 {
		t.Errorf("first %v, again %v", first, again)
	}
	last := len(again.Headers) - 1
	if again.Headers[last].Key != outbox.HeaderReplay || fmt.Sprint(again.Headers[:last]) != fmt.Sprint(first.Headers) {
		t.Errorf("headers\nfirst %s\nagain %s", first.Headers, again.Headers)
	}
}
