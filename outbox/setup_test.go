package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		childRelay()
		return
	}
	testenv.Main(m)
}

// bundle is one test's database, topic and what it appended.
type bundle struct {
	t       testing.TB
	url     string
	brokers []string
	topic   string
	cfg     Config
	log     *slog.Logger
	conn    *pgx.Conn // as the ingester
	next    map[string]int64
	cost    drainCost // of the last drain
}

// setup makes a bundle on a real Kafka, or on brokers when given.
func setup(t testing.TB, brokers ...string) *bundle {
	t.Helper()
	if len(brokers) == 0 {
		brokers = testenv.Kafka(t)
	}
	b := &bundle{t: t, url: testenv.Postgres(t), brokers: brokers, next: make(map[string]int64), log: slog.New(slog.DiscardHandler)}
	if os.Getenv("HUBSTATE_TEST_LOG") != "" {
		b.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	s := testenv.Settings()
	b.topic = "none"
	if brokers[0] != "127.0.0.1:1" {
		b.topic = testenv.Topic(t, brokers, s.TopicPartitions)
	}
	b.cfg = Config{
		Instance: "relay", Cell: s.Cell, Buckets: s.Buckets, Topic: b.topic, TopicPartitions: s.TopicPartitions,
		TTL: 2 * time.Second, Renew: 200 * time.Millisecond, Margin: 300 * time.Millisecond,
		PollIdle: 100 * time.Millisecond, // few tests ring the bell
	}
	b.conn = b.connect("hubstate_ingest")
	b.exec(`SELECT ensure_partition('outbox', clock_timestamp())`)
	b.exec(`SELECT ensure_partition('outbox', clock_timestamp() + interval '1 hour')`)
	return b
}

func (b *bundle) connect(role string) *pgx.Conn {
	b.t.Helper()
	conn, err := b.dial(role)(b.t.Context())
	if err != nil {
		b.t.Fatalf("connect as %s: %v", role, err)
	}
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (b *bundle) dial(role string) func(context.Context) (*pgx.Conn, error) {
	return func(ctx context.Context) (*pgx.Conn, error) {
		conn, err := pgx.Connect(ctx, b.url)
		if err != nil {
			return nil, err
		}
		_, err = conn.Exec(ctx, "SET ROLE "+role)
		return conn, err
	}
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.conn.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// message is the next event of the device.
func (b *bundle) message(device string, payload []byte) *Message {
	b.next[device]++
	seq := b.next[device]
	var id [16]byte
	copy(id[:], fmt.Sprintf("%-8.8s%08d", device, seq))
	if payload == nil {
		payload = []byte(fmt.Sprintf(`{"device_id":%q,"sequence":%d}`, device, seq))
	}
	return &Message{
		ID: id, AggregateType: "device", AggregateID: device, EventType: "DeviceStateChanged", SchemaVersion: 1,
		Stream: "state", Epoch: 1, Sequence: seq, Source: "/hubs/h1", Payload: payload,
	}
}

// append commits the messages in one transaction.
func (b *bundle) append(messages ...*Message) {
	b.t.Helper()
	if err := appendAll(b.t.Context(), b.conn, b.cfg.Buckets, messages); err != nil {
		b.t.Fatalf("append: %v", err)
	}
}

func appendAll(ctx context.Context, conn *pgx.Conn, buckets int, messages []*Message) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		keys := make([]string, 0, len(messages))
		for _, m := range messages {
			keys = append(keys, m.AggregateID)
		}
		first, second := &pgx.Batch{}, &pgx.Batch{}
		txn := Begin(first, buckets, keys)
		if err := tx.SendBatch(ctx, first).Close(); err != nil {
			return err
		}
		for _, m := range messages {
			if err := txn.Append(m); err != nil {
				return err
			}
		}
		if err := txn.Write(ctx, tx.Conn(), second); err != nil {
			return err
		}
		return tx.SendBatch(ctx, second).Close()
	})
}

// fill appends n events for each of devices, in batches.
func (b *bundle) fill(devices, n int) {
	b.t.Helper()
	for range n {
		var batch []*Message
		for d := range devices {
			batch = append(batch, b.message("device-"+strconv.Itoa(d), nil))
		}
		b.append(batch...)
	}
}

// running is a relay in this process.
type running struct {
	*Relay
	stop func()
	done chan error
}

// start runs a relay until the test ends or stop is called.
func (b *bundle) start(change ...func(*Config)) *running {
	b.t.Helper()
	cfg := b.cfg
	for _, c := range change {
		c(&cfg)
	}
	relay, err := New(cfg, b.deps())
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Relay: relay, done: make(chan error, 1)}
	go func() { r.done <- relay.Run(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-r.done; err != nil {
				b.t.Errorf("relay: %v", err)
			}
		})
	}
	b.t.Cleanup(r.stop)
	return r
}

func (b *bundle) deps() Deps {
	return Deps{Connect: b.dial("hubstate_relay"), Kafka: []kgo.Opt{kgo.SeedBrokers(b.brokers...)}, Log: b.log}
}

// eventually polls until ok or the deadline.
func eventually(t testing.TB, what string, within time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
