package partitions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain())
	}
	testenv.Main(m)
}

const testBuckets = 64

// fixture is one database and what a test does with it.
type fixture struct {
	testing.TB
	url   string
	conn  *pgx.Conn // superuser, for looking and breaking
	clock *clock
	dir   Dir
}

// clock is what the maintainer takes the time for: the database's time plus an offset.
type clock struct {
	mu     sync.Mutex
	offset time.Duration
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

func (c *clock) at(database time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return database.Add(c.offset)
}

func setup(t testing.TB) *fixture { return setupAt(t, testenv.Postgres(t)) }

func setupAt(t testing.TB, url string) *fixture {
	t.Helper()
	f := &fixture{TB: t, url: url, clock: &clock{}, dir: Dir(t.TempDir())}
	f.conn = f.connect("")
	return f
}

// connect opens a session as role; it is closed with the test.
func (f *fixture) connect(role string) *pgx.Conn {
	f.Helper()
	conn, err := dial(f.Context(), f.url, role, f.Name())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close(context.WithoutCancel(f.Context())) })
	return conn
}

func dial(ctx context.Context, url, role, name string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["application_name"] = name
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil || role == "" {
		return conn, err
	}
	_, err = conn.Exec(ctx, "SET ROLE "+role)
	return conn, err
}

// step is the interval of most tests: so long that no test straddles a border of the real clock.
const step = 24 * time.Hour

// config is a maintainer over this database with archives, trusting the clock at once.
func (f *fixture) config() Config { return f.configOf(f.Name()) }

func (f *fixture) configOf(name string) Config {
	return Config{
		Spec: Spec{Interval: step, Runway: 5 * step, RetainSent: 10 * step, NoSettle: true},
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			return dial(ctx, f.url, "hubstate_maintainer", "maintainer of "+name)
		},
		Drained: outboxDrained, Barrier: passBucketLocks, Store: f.dir,
		LockTimeout: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		clock: f.clock.at,
	}
}

// turn takes one turn of a new maintainer.
func (f *fixture) turn(cfg Config) {
	f.Helper()
	if err := f.tryTurn(cfg); err != nil {
		f.Fatalf("turn: %v", err)
	}
}

func (f *fixture) tryTurn(cfg Config) error {
	f.Helper()
	cfg.Registry = prometheus.NewRegistry()
	m, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	_, err = m.Once(f.Context())
	return err
}

// state is what the database says now.
func (f *fixture) state() State {
	f.Helper()
	state, _, err := readState(f.Context(), f.conn, Spec{}.withDefaults(), false)
	if err != nil {
		f.Fatal(err)
	}
	return state
}

func (f *fixture) exec(sql string, args ...any) {
	f.Helper()
	if _, err := f.conn.Exec(f.Context(), sql, args...); err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
}

func (f *fixture) query(sql string, args ...any) (value int64) {
	f.Helper()
	if err := f.conn.QueryRow(f.Context(), sql, args...).Scan(&value); err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
	return value
}

// drain moves every cursor to the end, as a relay does that published everything.
func (f *fixture) drain() {
	f.exec(`UPDATE outbox_bucket b SET cursor = greatest(cursor, coalesce((SELECT max(position) FROM outbox o WHERE o.bucket = b.bucket), 0))`)
}

// write appends rows as an ingester does: locks, floor, insert, with ensure_partition and a retry when one is missing.
func (f *fixture) write(conn *pgx.Conn, devices ...string) {
	f.Helper()
	if err := appendRows(f.Context(), conn, testBuckets, devices...); err != nil {
		f.Fatal(err)
	}
}

func appendRows(ctx context.Context, conn *pgx.Conn, buckets int, devices ...string) error {
	messages := make([]*outbox.Message, len(devices))
	for i, device := range devices {
		messages[i] = message(device, int64(i))
	}
	return appendMessages(ctx, conn, buckets, messages)
}

func appendMessages(ctx context.Context, conn *pgx.Conn, buckets int, messages []*outbox.Message) error {
	for try := 1; ; try++ {
		txn := &outbox.Txn{}
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			keys := make([]string, len(messages))
			for i, m := range messages {
				keys[i] = m.AggregateID
			}
			if err := begin(ctx, tx, txn, buckets, keys); err != nil {
				return err
			}
			return insert(ctx, tx, txn, messages...)
		})
		if err == nil || try == 5 || !missingPartition(err) {
			return err
		}
		if _, err := conn.Exec(ctx, `SELECT ensure_partition('outbox', $1)`, txn.CreatedAt()); err != nil && !isLockTimeout(err) {
			return fmt.Errorf("ensure partition: %w", err)
		}
	}
}

// begin takes the locks and reads the floor, and leaves the transaction open.
func begin(ctx context.Context, tx pgx.Tx, txn *outbox.Txn, buckets int, devices []string) error {
	var b pgx.Batch
	txn.Begin(&b, buckets, devices)
	return tx.SendBatch(ctx, &b).Close()
}

func insert(ctx context.Context, tx pgx.Tx, txn *outbox.Txn, messages ...*outbox.Message) error {
	for _, m := range messages {
		if err := txn.Append(m); err != nil {
			return err
		}
	}
	var b pgx.Batch
	if err := txn.Queue(&b); err != nil {
		return err
	}
	return tx.SendBatch(ctx, &b).Close()
}

func message(device string, sequence int64) *outbox.Message {
	id := [16]byte{15: byte(sequence), 14: byte(sequence >> 8)}
	copy(id[:8], device)
	return &outbox.Message{
		ID: id, AggregateType: "device", AggregateID: device, EventType: "DeviceStateChanged", SchemaVersion: 1, Stream: "state",
		Epoch: 1, Sequence: sequence + 1, Source: "/hubs/north", Payload: []byte(`{"state":"é\"` + device + `"}`),
		OccurredAt: time.Date(2026, 3, 1, 10, 0, 0, 123456000, time.UTC),
	}
}

func missingPartition(err error) bool {
	var pg interface{ SQLState() string }
	return errors.As(err, &pg) && pg.SQLState() == "23514"
}
