package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/faultnet"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// setupFake is setup on an in-process Kafka that the test has made.
func setupFake(t testing.TB, brokers []string) *bundle {
	t.Helper()
	b := setup(t, "127.0.0.1:1")
	b.brokers = brokers
	return b
}

func (b *bundle) admin(sql string, args ...any) {
	b.t.Helper()
	conn, err := pgx.Connect(context.Background(), b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// world is a history under way.
type world struct {
	b      *bundle
	t      *testing.T
	kafka  *kfake.Cluster
	ctx    context.Context
	cancel context.CancelFunc
	seen   *topicModel

	cursors map[int][2]int64 // cursor and term of each bucket at the last check

	relays  [3]*modelRelay
	retired []*modelRelay
	started int
	slow    []*slowAppend
}

// modelRelay is a relay behind two proxies: cutting both is a crash, muting both is SIGSTOP.
type modelRelay struct {
	db, kafka *faultnet.Proxy
	cancel    context.CancelFunc
	done      chan error
	frozen    bool
}

// slowAppend is a transaction that took positions and is still open.
type slowAppend struct {
	tx   pgx.Tx
	conn *pgx.Conn
}

func (w *world) do(s step) {
	switch s.kind {
	case stepAppend:
		for i := range 1 + s.a%3 {
			w.append(s.b+i*7, 1+s.a%12, nil)
		}
	case stepOpenSlow:
		w.openSlow(s)
	case stepCloseSlow:
		w.closeSlow(s.a%4 != 0)
	case stepStart:
		w.start(s)
	case stepStop:
		w.end(s.a%len(w.relays), false)
	case stepCrash:
		w.end(s.a%len(w.relays), true)
	case stepFreeze:
		w.freeze(s.a%len(w.relays), true)
	case stepThaw:
		w.freeze(s.a%len(w.relays), false)
	case stepPoison:
		w.append(s.b, 1, noise(1_200_000))
	case stepDiscard:
		w.b.admin(`UPDATE outbox_dead SET state = 'releasing', decision = 'discard' WHERE state = 'dead' AND parks`)
	case stepPause:
		time.Sleep(time.Duration(s.a%300) * time.Millisecond) // the world goes on by itself meanwhile
	default:
		w.fault(s)
	}
}

// fault makes Kafka answer the next produce request of a partition badly. A time-out is answered after the records were
// appended: the lost acknowledgement.
func (w *world) fault(s step) {
	if s.kind == stepDisconnect {
		w.kafka.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			return nil, errors.New("connection dropped by the model"), true
		})
		return
	}
	err := map[stepKind]*kerr.Error{stepRefuse: kerr.MessageTooLarge, stepTimeOut: kerr.RequestTimedOut, stepNotLeader: kerr.NotLeaderForPartition}[s.kind]
	w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{int32(s.a % modelPartitions)}, Err: err})
}

// append is an ingester's transaction: lock, then read, then write (the read is a statement of its own).
func (w *world) append(pick, events int, payload []byte) {
	conn, err := w.b.dial("hubstate_ingest")(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := w.appendOpen(conn, pick, events, payload)
	if err == nil {
		err = tx.Commit(w.ctx)
	}
	var timeout net.Error
	if err != nil && !errors.As(err, &timeout) && !errors.Is(err, errLockWait) {
		w.t.Fatalf("append: %v", err)
	}
}

var errLockWait = errors.New("a slow writer holds the bucket")

func (w *world) appendOpen(conn *pgx.Conn, pick, events int, payload []byte) (pgx.Tx, error) {
	device := "d" + strconv.Itoa(pick%modelDevices)
	if _, err := conn.Exec(w.ctx, `SET lock_timeout = '50ms'`); err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, err
	}
	first, second := &pgx.Batch{}, &pgx.Batch{}
	txn := &Txn{}
	txn.Begin(first, modelBuckets, []string{device})
	var sequence int64
	first.Queue(`SELECT sequence FROM model_device WHERE device = $1`, device).QueryRow(func(row pgx.Row) error { return row.Scan(&sequence) })
	if err := tx.SendBatch(w.ctx, first).Close(); err != nil {
		_ = tx.Rollback(w.ctx)
		return nil, fmt.Errorf("%w: %w", errLockWait, err)
	}
	for range events {
		sequence++
		m := &Message{AggregateType: "device", AggregateID: device, EventType: "E", SchemaVersion: 1, Stream: "state", Epoch: 1, Sequence: sequence, Source: "/", Payload: payload}
		rand.NewChaCha8([32]byte{byte(pick), byte(sequence), byte(sequence >> 8), 1}).Read(m.ID[:])
		if payload == nil {
			m.Payload = []byte(strconv.FormatInt(sequence, 10))
		}
		if err := txn.Append(m); err != nil {
			return nil, err
		}
	}
	if err := txn.Queue(second); err != nil {
		return nil, err
	}
	second.Queue(`UPDATE model_device SET sequence = $2 WHERE device = $1`, device, sequence)
	if err := tx.SendBatch(w.ctx, second).Close(); err != nil {
		_ = tx.Rollback(w.ctx)
		return nil, fmt.Errorf("%w: %w", errLockWait, err)
	}
	return tx, nil
}

func (w *world) openSlow(s step) {
	conn, err := w.b.dial("hubstate_ingest")(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	tx, err := w.appendOpen(conn, s.a, 1+s.b%3, nil)
	if err != nil {
		_ = conn.Close(w.ctx)
		return
	}
	w.slow = append(w.slow, &slowAppend{tx: tx, conn: conn})
}

func (w *world) closeSlow(commit bool) {
	for _, s := range w.slow {
		if commit {
			_ = s.tx.Commit(w.ctx)
		}
		_ = s.conn.Close(w.ctx)
	}
	w.slow = nil
}

func (w *world) start(s step) {
	slot := s.a % len(w.relays)
	if w.relays[slot] != nil {
		return
	}
	w.started++
	cfg := w.b.cfg
	cfg.Instance = "m" + strconv.Itoa(w.started)
	cfg.WindowRows = []int{1, 3, 16, 512}[s.b%4]
	if s.b%3 == 0 {
		cfg.Backlog, cfg.BacklogAge = BacklogLatest, 100*time.Millisecond
	}
	if s.b%5 == 0 {
		cfg.OnDead = DeadHold
	}
	w.relays[slot] = w.launch(cfg)
}

func (w *world) launch(cfg Config) *modelRelay {
	ctx, cancel := context.WithCancel(w.ctx)
	r := &modelRelay{cancel: cancel, done: make(chan error, 1)}
	parsed, err := pgx.ParseConfig(w.b.url)
	if err != nil {
		w.t.Fatal(err)
	}
	r.db = w.proxy(net.JoinHostPort(parsed.Host, strconv.Itoa(int(parsed.Port))))
	r.kafka = w.proxy(w.b.brokers[0])
	deps := w.b.deps()
	deps.Connect = func(ctx context.Context) (*pgx.Conn, error) { return connectThrough(ctx, w.b.url, r.db.Addr()) }
	var d net.Dialer
	deps.Kafka = append(deps.Kafka, kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.DialContext(ctx, network, r.kafka.Addr())
	}))
	relay, err := New(cfg, deps)
	if err != nil {
		w.t.Fatal(err)
	}
	go func() { r.done <- relay.Run(ctx) }()
	return r
}

func (w *world) proxy(target string) *faultnet.Proxy {
	p, err := faultnet.New(context.Background(), target)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func connectThrough(ctx context.Context, url, addr string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "SET ROLE hubstate_relay")
	return conn, err
}

// end stops a relay in order, or crashes it: from that instant nothing of it reaches anybody, and it releases nothing.
func (w *world) end(slot int, crash bool) {
	r := w.relays[slot]
	if r == nil {
		return
	}
	w.relays[slot] = nil
	w.retired = append(w.retired, r)
	if crash {
		r.db.Cut()
		r.kafka.Cut()
	} else {
		r.heal()
	}
	r.cancel()
}

func (w *world) freeze(slot int, frozen bool) {
	r := w.relays[slot]
	if r == nil || r.frozen == frozen {
		return
	}
	r.frozen = frozen
	if !frozen {
		r.heal()
		return
	}
	for _, p := range []*faultnet.Proxy{r.db, r.kafka} {
		p.Mute(faultnet.Up)
		p.Mute(faultnet.Down)
	}
}

func (r *modelRelay) heal() { r.db.Heal(); r.kafka.Heal() }

// close ends everything; relays that are cut off end by their own time-outs.
func (w *world) close() {
	w.closeSlow(false)
	for slot := range w.relays {
		w.end(slot, false)
	}
	w.cancel()
	var all sync.WaitGroup
	for _, r := range w.retired {
		all.Go(func() { <-r.done; _ = r.db.Close(); _ = r.kafka.Close() })
	}
	all.Wait()
	w.seen.client.Close()
}
