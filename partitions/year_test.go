package partitions

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5"
)

// yearEnv is how many partitions TestYear takes through their life; 584 is a year of 15-hour partitions. With it set, the
// relays publish to a real Kafka and the times are judged too.
const yearEnv = "HUBSTATE_TEST_PARTITIONS"

// TestYear_InMinutes takes many partitions of one minute through their whole life while ingest and two relays run: the
// maintainer's clock, and through the floor the writers', runs faster than time. Nothing is lost or reordered on the way
// to Kafka and to the archives, only the current and the next two are attached, and neither the relay's poll nor
// ingest's commit slows down.
func TestYear_InMinutes_P1P2(t *testing.T) {
	if os.Getenv(yearEnv) == "" {
		t.Parallel()
	}
	partitions, err := strconv.Atoi(or(os.Getenv(yearEnv), "25"))
	if err != nil {
		t.Fatal(err)
	}
	f := setup(t)
	cfg := f.config()
	cfg.Interval, cfg.Runway, cfg.RetainSent = time.Minute, 5*time.Minute, 12*time.Minute
	f.clock.forward(time.Hour)
	m := f.manager(cfg)
	if err := m.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer m.disconnect(t.Context())
	f.passBorder(m)
	p := f.startRelays(f.yearBrokers())
	sequences := [2]map[string]int64{{}, {}}

	quiet := p.startLoad(sequences)
	if err := sleep(t.Context(), time.Duration(partitions)*50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	quiet.end()
	busy := p.startLoad(sequences)
	attached, alone := f.passBorders(m, partitions)
	busy.end()
	f.clock.forward(time.Minute)
	f.passBorder(m)
	p.stopRelays()

	p.checkTopic(sequences)
	f.checkYear(p.written, partitions)
	// The current and the next two, and one that waits a turn for a writer that is open over its border.
	if limit := cfg.KeepAttached + attachAhead + 1 + 1; attached > limit || alone > int(cfg.Runway/cfg.Interval) {
		t.Errorf("up to %d attached (limit %d) and %d alone", attached, limit, alone)
	}
	half := len(busy.polls.all) / 2
	early, late := quantile(busy.polls.all[:half], 0.5), quantile(busy.polls.all[half:], 0.5)
	before, during := quiet.commits.quantile(0.99), busy.commits.quantile(0.99)
	t.Logf("%d partitions, %d events: poll p50 %s early, %s late; commit p50 %s p99 %s quiet, p50 %s p99 %s during maintenance; at most %d attached, %d alone",
		partitions, p.written, early, late, quiet.commits.quantile(0.5), before, busy.commits.quantile(0.5), during, attached, alone)
	if os.Getenv(yearEnv) != "" && (late > 2*early || during > 2*before) {
		t.Errorf("the relay's poll went from %s to %s, ingest's p99 from %s to %s: want neither doubled", early, late, before, during)
	}
}

// yearBrokers are real ones when the long run is asked for.
func (f *fixture) yearBrokers() []string {
	if os.Getenv(yearEnv) != "" {
		return testenv.Kafka(f)
	}
	return testenv.FakeKafka(f).ListenAddrs()
}

func (f *fixture) passBorders(m *Manager, n int) (attached, alone int) {
	f.Helper()
	for range n {
		f.clock.forward(time.Minute)
		f.passBorder(m)
		state := f.state()
		attached = max(attached, count(state, Attached)+count(state, Detaching))
		alone = max(alone, count(state, Alone))
	}
	return attached, alone
}

// passBorder lets the writers' clock reach the maintainer's, gives the relay the moment that a real minute would, and
// takes one turn.
func (f *fixture) passBorder(m *Manager) {
	f.Helper()
	slot := m.cfg.slot(f.clock.at(time.Now()))
	f.exec(`UPDATE partition_spec SET floor = greatest(floor, $1)`, slot.From)
	f.eventually("the relay has published what lies before the border", func() bool {
		return f.query(`SELECT count(*) FROM outbox o JOIN outbox_bucket b USING (bucket) WHERE created_at < $1 AND position > cursor`, slot.From) == 0
	})
	if lead, err := m.tick(f.Context()); err != nil || !lead {
		f.Fatalf("turn: lead %v, %v", lead, err)
	}
}

func count(s State, place Place) (n int) {
	for _, p := range s.Partitions {
		if p.Place == place {
			n++
		}
	}
	return n
}

// checkYear compares what was written with what is in the outbox, the history, and the archives of what was dropped.
func (f *fixture) checkYear(written int64, partitions int) {
	f.Helper()
	if dropped := f.query(`SELECT count(*) FROM partition_ledger WHERE phase = 'dropped'`); dropped < int64(partitions-16) {
		f.Errorf("%d partitions were dropped, want most of %d", dropped, partitions)
	}
	kept := f.query(`SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM outbox_history)`)
	var archived int64
	rows, err := f.conn.Query(f.Context(), `SELECT name FROM partition_ledger WHERE phase = 'dropped'`)
	if err != nil {
		f.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		man, err := Verify(f.Context(), f.dir, name)
		if err != nil {
			f.Fatal(err)
		}
		archived += man.Rows
	}
	if kept+archived != written {
		f.Errorf("%d rows written; %d in the database and %d in archives of dropped partitions", written, kept, archived)
	}
}
