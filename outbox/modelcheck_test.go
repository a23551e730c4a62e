package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topicModel reads the topic as it grows and judges it as a consumer's gate would.
type topicModel struct {
	client    *kgo.Client
	last      map[string]int64 // device → last sequence
	positions map[int64]bool   // on the topic, replays left out
	broken    error
}

func newTopicModel(b *bundle) *topicModel {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumeTopics("model"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(10*time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	return &topicModel{client: client, last: make(map[string]int64), positions: make(map[int64]bool)}
}

func (m *topicModel) poll() {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Millisecond)
	defer cancel()
	m.client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { m.add(deliveryOf(r)) })
}

func (m *topicModel) add(d delivery) {
	at := m.last[d.device]
	m.positions[d.position] = true
	if d.sequence <= at {
		return
	}
	for seq := at + 1; seq < d.sequence; seq++ {
		if !covers(d.skipped, seq) && m.broken == nil {
			m.broken = fmt.Errorf("O2/C2: %s: %d is missing before %d (position %d) and ce_skipped %q does not name it", d.device, seq, d.sequence, d.position, d.skipped)
		}
	}
	m.last[d.device] = d.sequence
}

// undecided are rows at or below their bucket's cursor; each must have had a fate before the cursor passed it (O4, O5).
const undecided = `SELECT o.position, o.aggregate_id, o.sequence, b.cursor FROM outbox o JOIN outbox_bucket b ON b.bucket = o.bucket AND o.position <= b.cursor
WHERE NOT EXISTS (SELECT FROM outbox_dead d WHERE d.position = o.position)
  AND NOT EXISTS (SELECT FROM outbox_skipped s WHERE s.aggregate_id = o.aggregate_id AND o.sequence BETWEEN s.from_sequence AND s.to_sequence)
  AND NOT EXISTS (SELECT FROM outbox_superseded s WHERE s.aggregate_id = o.aggregate_id AND o.sequence BETWEEN s.from_sequence AND s.to_sequence)
ORDER BY o.position`

// check holds after every step.
func (w *world) check() error {
	if err := w.forward(); err != nil {
		return err
	}
	passed, err := w.passed()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(2 * time.Second) // the topic is read behind the database: give it time to arrive
	for {
		w.seen.poll()
		if w.seen.broken != nil {
			return w.seen.broken
		}
		missing := ""
		for position, what := range passed {
			if !w.seen.positions[position] {
				missing = what
			}
		}
		if missing == "" {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("O4: the cursor passed a row that is not on the topic: %s", missing)
		}
	}
	return w.noInnocentDead()
}

// forward: no cursor and no term ever goes back, whoever writes (O3).
func (w *world) forward() error {
	conn, err := pgx.Connect(context.Background(), w.b.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(context.Background(), `SELECT bucket, cursor, term FROM outbox_bucket`)
	if err != nil {
		return err
	}
	var bucket int
	var at [2]int64
	_, err = pgx.ForEachRow(rows, []any{&bucket, &at[0], &at[1]}, func() error {
		if before := w.cursors[bucket]; at[0] < before[0] || at[1] < before[1] {
			return fmt.Errorf("O3: bucket %d went from cursor and term %v back to %v", bucket, before, at)
		}
		w.cursors[bucket] = at
		return nil
	})
	return err
}

func (w *world) passed() (map[int64]string, error) {
	conn, err := pgx.Connect(context.Background(), w.b.url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(context.Background(), undecided)
	if err != nil {
		return nil, err
	}
	passed := make(map[int64]string)
	var position, sequence, cursor int64
	var device string
	_, err = pgx.ForEachRow(rows, []any{&position, &device, &sequence, &cursor}, func() error {
		passed[position] = fmt.Sprintf("position %d (%s/%d), cursor %d", position, device, sequence, cursor)
		return nil
	})
	return passed, err
}

// noInnocentDead: the broker of the model refuses groups, never a row alone for ever; only poison may die, or a row that
// was alone when the broker refused. OVERTAKEN never happens to the real engine.
func (w *world) noInnocentDead() error {
	var bad []string
	conn, err := pgx.Connect(context.Background(), w.b.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(context.Background(), `SELECT error_code || ' at ' || position FROM outbox_dead WHERE error_code NOT IN ('MESSAGE_TOO_LARGE', 'HELD')`)
	if err != nil {
		return err
	}
	if bad, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return err
	}
	if len(bad) > 0 {
		return fmt.Errorf("O2/O6: rows died that were innocent: %s", strings.Join(bad, ", "))
	}
	return nil
}

// settle heals the world and waits until every row has its fate; then everything must add up.
func (w *world) settle() error {
	w.closeSlow(true)
	for slot := range w.relays {
		w.end(slot, false)
	}
	w.relays[0] = w.launch(w.b.cfg)
	deadline := time.Now().Add(30 * time.Second)
	for {
		if err := w.check(); err != nil {
			return err
		}
		pending, err := w.number(`SELECT count(*) FROM outbox o JOIN outbox_bucket b ON b.bucket = o.bucket AND o.position > b.cursor`)
		if err != nil {
			return err
		}
		halted, err := w.number(`SELECT count(*) FROM outbox_bucket WHERE halted IS NOT NULL`)
		if err != nil {
			return err
		}
		if halted > 0 {
			return fmt.Errorf("O3: %d buckets halted although nothing was restored", halted)
		}
		if pending == 0 { // the last rows may have been decided after the topic was read
			return errors.Join(w.check(), w.arrived())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("O5: %d rows have no fate 30 s after everything was healed", pending)
		}
	}
}

// arrived waits for the topic's reader: parked rows may have been released a moment ago.
func (w *world) arrived() error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		w.seen.poll()
		err := w.ends()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// ends compares the last delivered event of each device with the last committed one; a dead or parked tail
// is excused, also when what stood before it was superseded by it.
func (w *world) ends() error {
	conn, err := pgx.Connect(context.Background(), w.b.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(context.Background(), `SELECT o.aggregate_id, max(o.sequence) FROM outbox o
WHERE NOT EXISTS (SELECT FROM outbox_dead d WHERE d.position = o.position AND d.state <> 'published')
  AND NOT EXISTS (SELECT FROM outbox_skipped s WHERE s.aggregate_id = o.aggregate_id AND o.sequence BETWEEN s.from_sequence AND s.to_sequence) GROUP BY 1`)
	if err != nil {
		return err
	}
	var device string
	var want int64
	_, err = pgx.ForEachRow(rows, []any{&device, &want}, func() error {
		if got := w.seen.last[device]; got < want {
			return fmt.Errorf("O5: %s ends at %d on the topic, at %d in the database: %s", device, got, want, w.fates(device))
		}
		return nil
	})
	return err
}

func (w *world) number(sql string) (n int, err error) {
	conn, err := pgx.Connect(context.Background(), w.b.url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.Background())
	err = conn.QueryRow(context.Background(), sql).Scan(&n)
	return n, err
}

func (w *world) rows() int {
	n, err := w.number(`SELECT count(*) FROM outbox`)
	if err != nil {
		w.t.Error(err)
	}
	return n
}

// fates says what the database knows of a device's rows, for the report of a broken promise.
func (w *world) fates(device string) (report string) {
	conn, err := pgx.Connect(context.Background(), w.b.url)
	if err != nil {
		return err.Error()
	}
	defer conn.Close(context.Background())
	err = conn.QueryRow(context.Background(), `SELECT format('cursor %s; rows %s; dead %s; skipped %s; superseded %s',
 (SELECT cursor FROM outbox_bucket WHERE bucket = (SELECT min(bucket) FROM outbox WHERE aggregate_id = $1)),
 (SELECT string_agg(sequence || '@' || position, ' ' ORDER BY position) FROM outbox WHERE aggregate_id = $1),
 (SELECT string_agg(sequence || ':' || state || ':' || error_code || ':' || coalesce(decision, '') || ':' || parks, ' ' ORDER BY position) FROM outbox_dead WHERE aggregate_id = $1),
 (SELECT string_agg(from_sequence || '-' || to_sequence || ':' || reason, ' ' ORDER BY from_sequence) FROM outbox_skipped WHERE aggregate_id = $1),
 (SELECT string_agg(from_sequence || '-' || to_sequence, ' ' ORDER BY from_sequence) FROM outbox_superseded WHERE aggregate_id = $1))`, device).Scan(&report)
	if err != nil {
		return err.Error()
	}
	return report
}
