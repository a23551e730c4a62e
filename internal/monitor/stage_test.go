package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/internal/testenv"
)

// stage is a whole pipeline around a monitor, of which the test plays the ingester and the relay.
type stage struct {
	t        testing.TB
	kafka    *kfake.Cluster
	producer *kgo.Client
	database string
	redis    string
	topic    string
	profile  string
	sequence map[string]int64
}

const stagePartitions = 8

func newStage(t testing.TB, withDatabase bool) *stage {
	t.Helper()
	s := &stage{t: t, topic: "device-state-" + uuid.NewString(), redis: testenv.Redis(t), profile: "vda5050", sequence: map[string]int64{}}
	s.kafka = testenv.FakeKafka(t, kfake.SeedTopics(stagePartitions, s.topic))
	producer, err := kgo.NewClient(kgo.SeedBrokers(s.kafka.ListenAddrs()...), kgo.DefaultProduceTopic(s.topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	s.producer = producer
	if withDatabase {
		s.database = testenv.Postgres(t)
		s.exec(`UPDATE hubstate_settings SET topic = '` + s.topic + `'`)
		s.relay(true)
		s.exec(`INSERT INTO ingest_lane (lane, owner, term, lease_until) VALUES ('site-1', 'ingest-1', 1, now() + interval '1 day')`)
	}
	return s
}

// relay lets a relay look alive, or gone.
func (s *stage) relay(alive bool) {
	if alive {
		s.exec(`INSERT INTO relay_instance (instance, lease_until) VALUES ('relay-1', now() + interval '1 day') ON CONFLICT (instance) DO UPDATE SET lease_until = excluded.lease_until`)
		s.exec(`UPDATE outbox_bucket SET owner = 'relay-1', term = 1`)
		return
	}
	s.exec(`DELETE FROM relay_instance`)
	s.exec(`UPDATE outbox_bucket SET owner = NULL`)
}

// backlog leaves n rows in the outbox that nobody publishes.
func (s *stage) backlog(n int, age time.Duration) {
	at := time.Now().Add(-age).UTC().Format(time.RFC3339Nano)
	s.exec(`SELECT ensure_partition('outbox', '` + at + `')`)
	s.exec(`INSERT INTO outbox (bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, payload, created_at)
		SELECT g % 8, gen_random_uuid(), 'device', 'd' || g, 'DeviceStateChanged', 1, 'state', 1, 1, '/hubs/x', '{}', '` + at + `' FROM generate_series(1, ` + strconv.Itoa(n) + `) g`)
}

func (s *stage) exec(sql string) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.database)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(s.t.Context()))
	if _, err := conn.Exec(s.t.Context(), sql); err != nil {
		s.t.Fatal(err)
	}
}

// say publishes the next event of a device's stream, as relay and ingest would. change may be nil.
func (s *stage) say(hub, device, stream, state string, received time.Time, change func(*devicestate.Event)) *kgo.Record {
	key := device + "|" + stream
	s.sequence[key]++
	e := devicestate.Event{
		MessageID: uuid.New(), Device: device, Hub: hub, Stream: stream, Epoch: 1, Sequence: s.sequence[key],
		OccurredAt: received.Add(-40 * time.Millisecond), ReceivedAt: received, Counter: devicestate.Some(s.sequence[key]), State: []byte(state),
	}
	if change != nil {
		change(&e)
	}
	s.sequence[key] = e.Sequence
	return &kgo.Record{
		Key: []byte(device), Value: devicestate.AppendEvent(nil, &e), Timestamp: received.Add(9 * time.Millisecond),
		Headers: []kgo.RecordHeader{
			{Key: "ce_type", Value: []byte(devicestate.EventType)}, {Key: "ce_schemaversion", Value: []byte("1")},
			{Key: "ce_committedat", Value: []byte(received.Add(4 * time.Millisecond).UTC().Format(time.RFC3339Nano))},
		},
	}
}

func (s *stage) publish(records ...*kgo.Record) {
	s.t.Helper()
	if err := s.producer.ProduceSync(s.t.Context(), records...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

// show is one running monitor.
type show struct {
	*Service
	t    testing.TB
	reg  *prometheus.Registry
	stop func()
}

type noted struct {
	mu  sync.Mutex
	err error
}

func (n *noted) Set(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
}

func (n *noted) get() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// monitor starts one; it stops with the test or by stop.
func (s *stage) monitor(change func(*Config)) *show {
	s.t.Helper()
	cfg := DefaultConfig()
	cfg.KafkaBrokers, cfg.KafkaTopic, cfg.RedisURL, cfg.PageAddr = s.kafka.ListenAddrs(), s.topic, s.redis, "127.0.0.1:0"
	cfg.Profiles = []string{s.profile}
	if change != nil {
		change(&cfg)
	}
	reg := prometheus.NewRegistry()
	out := Outside{Log: slog.New(slog.DiscardHandler), Registerer: reg, Reading: &noted{}, Serving: &noted{}}
	ctx, cancel := context.WithCancel(s.t.Context())
	if s.database != "" {
		out.Database = s.pool()
	}
	m, err := New(cfg, out)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := m.Listen(); err != nil {
		s.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }() // waited for by stop
	w := &show{Service: m, t: s.t, reg: reg}
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("monitor: %v", err)
		}
	})
	s.t.Cleanup(w.stop)
	return w
}

// pool reads as the daemon does: as hubstate_reader, read only.
func (s *stage) pool() *pgxpool.Pool {
	s.t.Helper()
	cfg, err := pgxpool.ParseConfig(s.database)
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["role"] = "hubstate_reader"
	cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	pool, err := pgxpool.NewWithConfig(s.t.Context(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(pool.Close)
	return pool
}

func (w *show) get(path string, v any) int {
	w.t.Helper()
	resp, err := http.Get("http://" + w.Addr() + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if v != nil && resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(body, v); err != nil {
			w.t.Fatalf("%s: %v\n%s", path, err, body)
		}
	}
	return resp.StatusCode
}

// until polls the overview until ok likes it.
func (w *show) until(what string, ok func(*Overview) bool) Overview {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		var o Overview
		w.get("/api/v1/overview", &o)
		if ok(&o) {
			return o
		}
		if time.Now().After(deadline) {
			text, _ := json.MarshalIndent(o, "", " ")
			w.t.Fatalf("never: %s\n%.4000s", what, text)
		}
		time.Sleep(20 * time.Millisecond) // a poll, not a wait for a state
	}
}

func (o *Overview) hub(id string) Hub {
	for _, h := range o.Hubs {
		if h.ID == id {
			return h
		}
	}
	return Hub{}
}

// seen: everything published so far is on the screen.
func (o *Overview) seen(n int64) bool {
	var events int64
	for _, h := range o.Hubs {
		events += h.Totals.Events
	}
	return events >= n && !o.AsOf.IsZero()
}

func name(i int) string { return fmt.Sprintf("acme/agv-%05d", i) }
