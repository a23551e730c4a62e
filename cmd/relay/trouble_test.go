package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// trouble is a relay under load on a Kafka of its own, which things happen to.
type trouble struct {
	*testing.T
	url   string
	conn  *pgx.Conn // the test's; the writer has another
	kafka *embedded.Kafka
	topic string
	admin *kadm.Client
}

func newTrouble(t *testing.T) *trouble {
	t.Helper()
	if os.Getenv("HUBSTATE_TEST_LONG") == "" {
		t.Skip("takes two minutes: set HUBSTATE_TEST_LONG=1")
	}
	// Rights can be taken away, from everybody, by a deny: without any ACL everything is allowed.
	kafka, err := embedded.StartKafka(t.Context(), embedded.KafkaOptions{Dir: t.TempDir(), Settings: map[string]string{
		"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found": "true",
		"super.users":                    "User:nobody",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = kafka.Node(0).Kill()
		_ = kafka.Stop(context.WithoutCancel(t.Context()))
	})
	tr := &trouble{T: t, url: testenv.Postgres(t), kafka: kafka, topic: "device-state"}
	tr.conn = connect(t, tr.url)
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	tr.admin = kadm.NewClient(client)
	return tr
}

// load commits events of 20 devices until stop is called, which returns how many each device has.
func (tr *trouble) load() (stop func() map[string]int64) {
	tr.Helper()
	conn := connect(tr.T, tr.url)
	var ended atomic.Bool
	var g errgroup.Group
	sequences := map[string]int64{}
	g.Go(func() error {
		for !ended.Load() {
			var events []event
			for i := range 20 {
				device := fmt.Sprint("load-", i)
				sequences[device]++
				events = append(events, event{device: device, sequence: sequences[device]})
			}
			appendEvents(tr.T, conn, events...)
			time.Sleep(20 * time.Millisecond) // the pace of the load, not a wait for anything
		}
		return nil
	})
	return func() map[string]int64 {
		ended.Store(true)
		_ = g.Wait()
		return sequences
	}
}

// seen waits until a bucket shows one of the codes as its last error.
func (tr *trouble) seen(codes ...string) {
	tr.Helper()
	eventually(tr.T, time.Minute, func() error {
		rows, err := tr.conn.Query(tr.Context(), "SELECT DISTINCT last_error_code FROM outbox_bucket WHERE last_error_code IS NOT NULL")
		if err != nil {
			return err
		}
		have, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err == nil && !slices.ContainsFunc(have, func(c string) bool { return slices.Contains(codes, c) }) {
			err = fmt.Errorf("want one of %v, have %v", codes, have)
		}
		return err
	})
}

// recovered waits until the oldest waiting event is young again and nothing fails, and says what it cost.
func (tr *trouble) recovered(what string) {
	tr.Helper()
	since := time.Now()
	eventually(tr.T, 90*time.Second, func() error {
		var late, failing, halted int
		err := tr.conn.QueryRow(tr.Context(), `SELECT count(*) FILTER (WHERE o.created_at < now() - interval '2 seconds'), count(*) FILTER (WHERE b.last_error_code IS NOT NULL), count(*) FILTER (WHERE b.halted IS NOT NULL)
			FROM outbox_bucket b LEFT JOIN LATERAL (SELECT created_at FROM outbox x WHERE x.bucket = b.bucket AND x.position > b.cursor ORDER BY x.position LIMIT 1) o ON true`).Scan(&late, &failing, &halted)
		if err == nil && late+failing+halted > 0 {
			err = fmt.Errorf("after %s: %d buckets late, %d failing, %d halted", what, late, failing, halted)
		}
		return err
	})
	tr.Logf("%s: went on by itself, drained %.1f s after the repair", what, time.Since(since).Seconds())
}

func (tr *trouble) deadRows() map[string]int {
	tr.Helper()
	rows, err := tr.conn.Query(tr.Context(), "SELECT aggregate_id || ' ' || error_code FROM outbox_dead")
	if err != nil {
		tr.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		tr.Fatal(err)
	}
	count := map[string]int{}
	for _, a := range all {
		count[a]++
	}
	return count
}

func (tr *trouble) deny(on bool) {
	tr.Helper()
	b := kadm.NewACLs().Topics(tr.topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpWrite).Deny("User:*").DenyHosts("*")
	var err error
	if on {
		_, err = tr.admin.CreateACLs(tr.Context(), b)
	} else {
		_, err = tr.admin.DeleteACLs(tr.Context(), b)
	}
	if err != nil {
		tr.Fatal(err)
	}
}

// TestRelay_BrokerTroubleEndsInItsClassAndHeals goes through what happens to brokers, one after the other, under load:
// every trouble is called what docs/relay-errors.md says, costs no row that is not at fault, and needs nobody but who
// repairs the cause. At the end everything is on the topic, in order.
func TestRelay_BrokerTroubleEndsInItsClassAndHeals_O2_O6(t *testing.T) {
	t.Parallel()
	tr := newTrouble(t)
	stopRelay := startRelay(t, tr.url, tr.kafka.Brokers())
	stopLoad := tr.load()
	tr.recovered("the start")

	node := tr.kafka.Node(0)
	tr.do(node.Kill())
	tr.do(node.Restart(tr.Context()))
	tr.recovered("kafka killed and restarted")

	tr.do(node.Pause())
	time.Sleep(40 * time.Second) // the length of the outage is the test
	tr.do(node.Resume())
	tr.recovered("kafka paused for 40 s")

	tr.deny(true)
	tr.seen("TOPIC_AUTHORIZATION_FAILED")
	tr.deny(false)
	tr.recovered("ACL revoked and granted again")

	// Disk full: every write of the broker fails.
	tr.do(unix.Prlimit(node.PID(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1, Max: unix.RLIM_INFINITY}, nil))
	<-node.Done()
	tr.do(node.Restart(tr.Context()))
	tr.recovered("disk full, freed, restarted")

	if dead := tr.deadRows(); len(dead) > 0 {
		t.Errorf("outages killed %v", dead)
	}

	setTopicLimit(t, tr.kafka.Brokers(), tr.topic, 4_000)
	big := event{device: "big", sequence: 1, payload: `"` + noise(9_000) + `"`}
	appendEvents(t, tr.conn, big, event{device: "big", sequence: 2})
	eventually(t, time.Minute, func() error {
		if dead := tr.deadRows(); !maps.Equal(dead, map[string]int{"big MESSAGE_TOO_LARGE": 1}) {
			return fmt.Errorf("message limit lowered: dead %v", dead)
		}
		return nil
	})
	tr.recovered("message limit lowered")
	setTopicLimit(t, tr.kafka.Brokers(), tr.topic, 1<<20)

	sequences := stopLoad()
	tr.recovered("the load")
	tr.complete(sequences)

	tr.deleteTopic()
	appendEvents(t, tr.conn, event{device: "after", sequence: 1})
	must(t, append([]string{"migrate", "--database-url", tr.url, "--kafka-brokers", tr.kafka.Brokers()[0]}, topicFlags()...)...)
	published(t, tr.conn)
	if got := consume(t, tr.kafka.Brokers(), tr.topic, 1); len(got["after"]) != 1 {
		t.Errorf("on the topic that was made again: %v", got)
	}
	stopRelay()
}

// deleteTopic returns when the topic is gone, or has been made again under another id.
func (tr *trouble) deleteTopic() {
	tr.Helper()
	before, err := tr.admin.ListTopics(tr.Context(), tr.topic)
	tr.do(err)
	_, err = tr.admin.DeleteTopic(tr.Context(), tr.topic)
	tr.do(err)
	eventually(tr.T, time.Minute, func() error {
		now, err := tr.admin.ListTopics(tr.Context(), tr.topic)
		if err == nil && now[tr.topic].Err == nil && now[tr.topic].ID == before[tr.topic].ID {
			err = fmt.Errorf("topic %s is still there", tr.topic)
		}
		return err
	})
}

func (tr *trouble) do(err error) {
	tr.Helper()
	if err != nil {
		tr.Fatal(err)
	}
}

// complete reads the whole topic and judges every device by its gate: nothing lost, first deliveries in order.
func (tr *trouble) complete(sequences map[string]int64) {
	tr.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(tr.kafka.Brokers()...), kgo.ConsumeTopics(tr.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	tr.do(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(tr.Context(), time.Minute)
	defer cancel()
	at := map[string]devicestate.Position{}
	duplicates := 0
	for open := len(sequences); open > 0; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			tr.Fatalf("%d devices are not complete: %v of %v", open, at, sequences)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			sequence, _ := strconv.ParseInt(header(r, "ce_sequence"), 10, 64)
			device, next := string(r.Key), devicestate.Position{Epoch: 1, Sequence: sequence}
			v := at[device].Check(next, nil)
			switch v.Outcome {
			case devicestate.Hole:
				if device != "big" {
					tr.Errorf("%s: %v is missing before %d", device, v.Missing, sequence)
				}
			case devicestate.Again, devicestate.Old:
				duplicates++
				return
			}
			at[device] = next
			if sequence == sequences[device] {
				open--
			}
		})
	}
	tr.Logf("complete: %d devices, %d topic duplicates", len(sequences), duplicates)
}
