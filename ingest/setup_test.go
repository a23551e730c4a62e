package ingest

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		runChild()
		return
	}
	testenv.Main(m)
}

func testLog(t testing.TB) *slog.Logger {
	if os.Getenv("HUBSTATE_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(testWriter{t}, nil)).With("test", t.Name())
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	_, err := os.Stderr.Write(p)
	return len(p), err
}

// openPool is what the daemon opens: the ingest role and its session settings.
func openPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := ops.OpenPool(t.Context(), url, Role, "hubstate-ingest-test", SessionSettings(), 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// openAdmin is a superuser's pool, for looking and for breaking things.
func openAdmin(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

// bench is a writer on a database of its own, without a broker: messages go in as they would come off the wire.
type bench struct {
	t       testing.TB
	url     string
	admin   *pgxpool.Pool
	service *Service
	writer  *writer
	decoder *decoder
	gen     *generation
	wire    *recorder
	id      uint16
	now     time.Time
}

// recorder is the broker's end of a connection: it keeps what was written.
type recorder struct {
	net.Conn
	written []byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.written = append(r.written, p...)
	return len(p), nil
}
func (r *recorder) Close() error                     { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

func newBench(t testing.TB, change ...func(*Config)) *bench {
	t.Helper()
	url := testenv.Postgres(t)
	return newBenchOn(t, url, openPool(t, url), change...)
}

func newBenchOn(t testing.TB, url string, pool *pgxpool.Pool, change ...func(*Config)) *bench {
	t.Helper()
	cfg := Config{Instance: "test", MQTTURL: "mqtt://unused:1883"}
	for _, c := range change {
		c(&cfg)
	}
	s, err := New(cfg, pool, prometheus.NewRegistry(), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, url: url, admin: openAdmin(t, url), service: s, now: time.Now()}
	b.claim("lane-0")
	return b
}

// claim makes a writer for a lane that is this test's.
func (b *bench) claim(name string) {
	b.t.Helper()
	l := &lane{name: name, owner: "test", ttl: b.service.cfg.Lease, pool: b.service.pool}
	if ok, err := l.claim(b.t.Context(), true); err != nil || !ok {
		b.t.Fatalf("claim: %v %v", ok, err)
	}
	b.writer = newWriter(b.service.cfg, l, newQueue(b.service.cfg.QueueReports, b.service.cfg.QueueBytes), b.service)
	b.decoder = newDecoder(b.service.matcher, b.service.cfg.Limits(), "hub")
	b.reconnect(true)
}

// reconnect starts another connection of the session.
func (b *bench) reconnect(present bool) {
	number := uint64(1)
	if b.gen != nil {
		b.gen.end(io.EOF)
		number = b.gen.number + 1
	}
	b.gen = newGeneration(number)
	b.gen.present.Store(present)
	b.gen.answered.Store(true)
	b.wire = &recorder{}
	b.gen.conn = newConn(b.wire, b.decoder.limit, b.gen, nil)
}

// message decodes a QoS 1 message with the next packet id, received at b.now.
func (b *bench) message(topic, payload string) item {
	b.id++
	return b.received(publish{topic: []byte(topic), payload: []byte(payload), size: len(payload), id: b.id, qos: 1})
}

func (b *bench) received(p publish) item { return b.decoder.decode(b.gen, p, b.now) }

// store commits items as one batch and fails the test when that does not work.
func (b *bench) store(items ...item) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	b.writer.lane.tail.prepare(items)
	for i := range items {
		items[i].report.Redelivered = b.writer.lane.tail.redelivered(&items[i])
	}
	if err := b.writer.store(ctx, items); err != nil || ctx.Err() != nil {
		b.t.Fatalf("store: %v %v", err, ctx.Err())
	}
}

// acked are the packet ids acknowledged on the current connection, in order.
func (b *bench) acked() []uint16 {
	var ids []uint16
	for w := b.wire.written; len(w) > 0; {
		switch w[0] >> 4 {
		case packetPuback:
			ids = append(ids, uint16(w[2])<<8|uint16(w[3]))
			w = w[4:]
		case packetPingreq:
			w = w[2:]
		default:
			b.t.Fatalf("unexpected packet %x", w[0])
		}
	}
	return ids
}

func query[T any](b *bench, sql string, args ...any) T {
	b.t.Helper()
	var v T
	if err := b.admin.QueryRow(b.t.Context(), sql, args...).Scan(&v); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// class counts of the lane's row.
func (b *bench) classes() map[devicestate.Class]int64 {
	b.t.Helper()
	m := map[devicestate.Class]int64{}
	for c := devicestate.Applied; c <= devicestate.Quarantined; c++ {
		if n := query[int64](b, "SELECT "+c.String()+" FROM ingest_lane WHERE lane = $1", b.writer.lane.name); n > 0 {
			m[c] = n
		}
	}
	return m
}
