package outbox

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lightLoad commits single events, a thousand a second, and remembers when each commit was answered. Its transactions are
// one round trip each, so that on a small machine the load leaves room for what is measured.
type lightLoad struct {
	b         *bundle
	mu        sync.Mutex
	committed map[string]time.Time
}

func (l *lightLoad) run(ctx context.Context, writers int) {
	var wg sync.WaitGroup
	for w := range writers {
		conn := l.b.connect("hubstate_ingest")
		wg.Go(func() {
			tick := time.NewTicker(time.Duration(writers) * time.Millisecond)
			defer tick.Stop()
			for seq := int64(1); ; seq++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				device := fmt.Sprintf("w%d-%d-%d", w, seq, time.Now().UnixNano())
				if err := l.commit(ctx, conn, device, w, seq); err != nil {
					return
				}
				l.mu.Lock()
				l.committed[device] = time.Now()
				l.mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// commit is one event in one implicit transaction: its bucket's lock, then its row (O1), as two statements of one batch.
func (l *lightLoad) commit(ctx context.Context, conn *pgx.Conn, device string, w int, seq int64) error {
	bucket := Bucket(device, l.b.cfg.Buckets)
	var id [16]byte
	copy(id[:], fmt.Sprintf("%02d%014d", w, seq))
	b := &pgx.Batch{}
	b.Queue(lockOneBucket, LockClass, int32(bucket))
	b.Queue(`INSERT INTO outbox (bucket, message_id, aggregate_type, aggregate_id, event_type, schema_version, stream, epoch, sequence, source, payload, created_at)
VALUES ($1, $2, 'device', $3, 'DeviceStateChanged', 1, 'state', 1, 1, '/hubs/h1', $4, clock_timestamp())`,
		bucket, pgtype.UUID{Bytes: id, Valid: true}, device, benchPayload(device, seq))
	return conn.SendBatch(ctx, b).Close()
}

// BenchmarkRelayLightLoad is commit → seen by a consumer at 1,000 single-row commits a second for ten seconds, from the
// moment a relay owns its buckets: its first two seconds count for themselves too. The broker has been warmed: one that has
// just started compiles its code for half a minute, whoever produces.
func BenchmarkRelayLightLoad(tb *testing.B) {
	b := setup(tb)
	b.cfg.TTL, b.cfg.Renew, b.cfg.Margin, b.cfg.PollIdle = 0, 0, 0, 0 // the defaults
	b.warmBroker(30 * time.Second)
	b.underLightLoad(5 * time.Second)
	first, all := b.underLightLoad(10 * time.Second)
	report := func(name string, d []time.Duration, percent int) {
		slices.Sort(d)
		tb.ReportMetric(float64(d[len(d)*percent/100].Microseconds())/1000, name)
	}
	if len(all) < 1000 {
		tb.Fatalf("only %d events were seen", len(all))
	}
	report("p50-ms", all, 50)
	report("p99-ms", all, 99)
	report("first-2s-p50-ms", first, 50)
	report("first-2s-p99-ms", first, 99)
	tb.ReportMetric(float64(len(all))/10, "events/s")
}

// warmBroker has many small requests produced and fetched as fast as the broker can, so that its code gets compiled.
func (b *bundle) warmBroker(span time.Duration) {
	b.t.Helper()
	topic := testenv.Topic(b.t, b.brokers, b.cfg.TopicPartitions)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.DefaultProduceTopic(topic), kgo.ConsumeTopics(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), span)
	defer cancel()
	for ctx.Err() == nil {
		records := make([]*kgo.Record, 1+rand.IntN(8))
		for i := range records {
			records[i] = &kgo.Record{Partition: rand.Int32N(int32(b.cfg.TopicPartitions)), Value: benchPayload("warm", 1)}
		}
		client.ProduceSync(ctx, records...)
		client.PollFetches(ctx)
	}
}

// underLightLoad starts a relay and returns the delays of its first two seconds, and all.
func (b *bundle) underLightLoad(span time.Duration) (first, all []time.Duration) {
	b.t.Helper()
	r := b.start()
	defer r.stop()
	eventually(b.t, "ready", 30*time.Second, func() bool { return r.Ready() == nil && b.owned() == b.cfg.Buckets })
	load := &lightLoad{b: b, committed: make(map[string]time.Time)}
	watch, stopWatching := context.WithCancel(b.t.Context())
	seen := b.seenAt(watch)
	working, stop := context.WithTimeout(b.t.Context(), span)
	defer stop()
	began := time.Now()
	load.run(working, 4)
	time.Sleep(500 * time.Millisecond) // the last ones arrive
	stopWatching()
	for device, at := range <-seen {
		committed, ok := load.committed[device]
		if !ok {
			continue
		}
		all = append(all, at.Sub(committed))
		if committed.Sub(began) < 2*time.Second {
			first = append(first, at.Sub(committed))
		}
	}
	return first, all
}

// seenAt consumes the topic until ctx ends and delivers when each device was seen first.
func (b *bundle) seenAt(ctx context.Context) <-chan map[string]time.Time {
	out := make(chan map[string]time.Time, 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumeTopics(b.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		b.t.Fatal(err)
	}
	client.PollFetches(withTimeout(b.t, time.Second)) // its connections and offsets are there
	go func() {
		defer client.Close()
		seen := make(map[string]time.Time)
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			now := time.Now()
			fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Key)] = now })
		}
		out <- seen
	}()
	return out
}

func withTimeout(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// BenchmarkRelayIdle is what two relays and their sessions cost while nothing happens, in percent of a core.
func BenchmarkRelayIdle(tb *testing.B) {
	b := setup(tb)
	b.cfg.TTL, b.cfg.Renew, b.cfg.Margin, b.cfg.PollIdle = 0, 0, 0, 0 // the defaults
	pids := []int{b.startChild("one").cmd.Process.Pid, b.startChild("two").cmd.Process.Pid}
	eventually(tb, "shared", time.Minute, func() bool {
		return b.ownedBy("one") == b.cfg.Buckets/2 && b.ownedBy("two") == b.cfg.Buckets/2
	})
	time.Sleep(2 * time.Second)
	const span = 20 * time.Second
	relays, sessions := cpuOf(tb, pids...), cpuOf(tb, b.sessions()...)
	time.Sleep(span)
	percent := func(now, before time.Duration) float64 { return 100 * float64(now-before) / float64(span) }
	tb.ReportMetric(percent(cpuOf(tb, pids...), relays), "relays-%core")
	tb.ReportMetric(percent(cpuOf(tb, b.sessions()...), sessions), "postgres-%core")
}

// sessions are the server processes of this database.
func (b *bundle) sessions() (pids []int) {
	b.t.Helper()
	rows, err := b.conn.Query(b.t.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database()`)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			b.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// cpuOf is the processor time of processes so far (proc(5), utime and stime, in ticks of 10 ms).
func cpuOf(t testing.TB, pids ...int) (sum time.Duration) {
	t.Helper()
	for _, pid := range pids {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			t.Skip(err)
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		for _, f := range fields[11:13] {
			ticks, _ := strconv.Atoi(string(f))
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}
