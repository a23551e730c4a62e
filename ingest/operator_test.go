package ingest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/internal/testenv"
)

func (b *bench) operator() *Operator {
	return NewOperator(b.service.pool, testenv.Settings().Buckets, "anna")
}

func TestOperator_AcceptRebootLetsALowerCounterIn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.store(b.message("hubs/h/devices/d/state", `{"seq":5000,"state":{"a":1}}`))
	if err := b.operator().AcceptReboot(t.Context(), "d", "nothing", "x"); !IsUnknown(err) {
		t.Errorf("unknown stream: %v", err)
	}
	if err := b.operator().AcceptReboot(t.Context(), "d", "state", "battery swapped"); err != nil {
		t.Fatal(err)
	}
	b.store(b.message("hubs/h/devices/d/state", `{"seq":200,"state":{"a":2}}`))
	if n := query[int64](b, `SELECT counter FROM device_state WHERE NOT reboot_pending`); n != 200 {
		t.Errorf("counter %d, want 200", n)
	}
	if n := query[int](b, `SELECT count(*) FROM audit WHERE actor = 'anna' AND action = 'accept_reboot' AND subject = 'd state' AND reason = 'battery swapped'`); n != 1 {
		t.Errorf("%d audit rows", n)
	}
}

func TestOperator_RestateSaysTheCurrentStateUnderTheNextSequence_D2(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.store(b.message("hubs/h/devices/d/state", `{"seq":1,"state":{"a":1}}`), b.message("hubs/h/devices/d/state", `{"seq":2,"state":{"a":2}}`),
		b.message("hubs/h/devices/d/alarm", `{"seq":9,"state":{"on":true}}`))
	done, err := b.operator().Restate(t.Context(), "d", "", "consumer lost it")
	if err != nil || len(done) != 2 {
		t.Fatalf("%v %v", done, err)
	}
	payload := query[[]byte](b, `SELECT payload FROM outbox WHERE stream = 'state' ORDER BY position DESC LIMIT 1`)
	e, err := devicestate.DecodeEvent(payload)
	if err != nil || e.Sequence != 3 || string(e.State) != `{"a":2}` || !e.Marks.Has(devicestate.MarkRestated) || e.Counter != devicestate.Some(2) {
		t.Errorf("event %+v %v", e, err)
	}
	b.store(b.message("hubs/h/devices/d/state", `{"seq":3,"state":{"a":3}}`))
	if n := query[int64](b, `SELECT sequence FROM device_state WHERE stream = 'state'`); n != 4 {
		t.Errorf("sequence %d after the next report, want 4", n)
	}
}

func TestOperator_MoveEndsTheConflictOfHubs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.store(b.message("hubs/h1/devices/d/state", `{"seq":1,"state":{}}`))
	b.store(b.message("hubs/h2/devices/d/state", `{"seq":2,"state":{}}`))
	if got := query[string](b, `SELECT reason FROM ingest_reject`); got != string(devicestate.ReasonHubConflict) {
		t.Errorf("reason %s", got)
	}
	if _, err := b.operator().Move(t.Context(), "d", "h 2", "x"); err == nil {
		t.Error("a hub with a space was taken")
	}
	if _, err := b.operator().Move(t.Context(), "d", "h2", "moved to hall 2"); err != nil {
		t.Fatal(err)
	}
	b.store(b.message("hubs/h2/devices/d/state", `{"seq":3,"state":{}}`))
	if n := query[int64](b, `SELECT sequence FROM device_state WHERE hub_id = 'h2' AND counter = 3`); n != 3 {
		t.Errorf("sequence %d, want 3: baseline, moved, next", n)
	}
	if src := query[string](b, `SELECT source FROM outbox ORDER BY position DESC LIMIT 1`); src != "/hubs/h2" {
		t.Errorf("source %s", src)
	}
}

// A topic that no profile knew is fed again once one does; what is refused again becomes a new reject.
func TestOperator_RetryFeedsStoredBytesThroughTheSamePath_N2(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.store(b.message("plant/7/meter", `{"n":1,"v":{"kwh":5}}`), b.message("plant/8/meter", `{"v":{}}`))
	profile := filepath.Join(t.TempDir(), "plant.yaml")
	text := "name: plant\ntopics:\n  - {pattern: 'plant/{device}/{stream}'}\nstreams:\n  meter:\n    fields: {counter: n, state: v}\n"
	if err := os.WriteFile(profile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := b.operator().Rejects(t.Context(), RejectFilter{})
	if err != nil || len(list) != 2 {
		t.Fatalf("%v %v", list, err)
	}
	done, err := b.operator().Retry(t.Context(), Config{Profiles: []string{profile}}, []int64{list[0].ID, list[1].ID}, "profile written")
	if err != nil || len(done) != 2 || done[0].Class != "applied" || done[1].Class != "quarantined" {
		t.Fatalf("%+v %v", done, err)
	}
	if n := query[int](b, `SELECT count(*) FROM device_state WHERE device_id = '7' AND received_at = (SELECT received_at FROM ingest_reject WHERE id = $1)`, list[0].ID); n != 1 {
		t.Errorf("the report does not keep its time of arrival")
	}
	if n := query[int](b, `SELECT count(*) FROM ingest_reject WHERE decided_at IS NULL AND reason = 'counter_missing'`); n != 1 {
		t.Errorf("%d undecided rejects, want the one that was refused again", n)
	}
	if _, err := b.operator().Retry(t.Context(), Config{Profiles: []string{profile}}, []int64{list[0].ID}, "again"); err == nil {
		t.Error("a decided reject was fed twice")
	}
	if _, err := b.operator().Retry(t.Context(), Config{}, []int64{99999}, "again"); !errors.Is(err, ErrUnknownReject) {
		t.Errorf("unknown reject: %v", err)
	}
	if err := b.operator().Discard(t.Context(), done[1].ID+1, "broken meter"); err != nil {
		t.Error(err)
	}
	if n := query[int](b, `SELECT count(*) FROM audit WHERE actor = 'anna'`); n != 3 {
		t.Errorf("%d audit rows, want 3", n)
	}
}

func TestOperator_GapsAndStatusTellWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	at := func(seq int) item {
		return b.message("hubs/h/devices/d/state", fmt.Sprintf(`{"seq":%d,"state":{}}`, seq))
	}
	b.store(at(1), at(10))
	b.store(at(5), at(5), at(6)) // late; one of them twice
	gaps, err := b.operator().Gaps(t.Context(), GapFilter{})
	if err != nil || len(gaps) != 1 || gaps[0].From != 2 || gaps[0].To != 9 || gaps[0].ArrivedLate != 2 || gaps[0].Missing != "{[2,5),[7,10)}" {
		t.Fatalf("%+v %v", gaps, err)
	}
	b.store(at(2), at(3), at(4), at(7), at(8), at(9))
	if gaps, err = b.operator().Gaps(t.Context(), GapFilter{}); err != nil || len(gaps) != 0 {
		t.Errorf("open gaps %+v %v", gaps, err)
	}
	if gaps, err = b.operator().Gaps(t.Context(), GapFilter{Closed: true, Device: "d"}); err != nil || len(gaps) != 1 || gaps[0].ClosedAt == nil {
		t.Errorf("closed gaps %+v %v", gaps, err)
	}
	s, err := b.operator().Status(t.Context())
	if err != nil || len(s.Lanes) != 1 || s.Lanes[0].Applied != 2 || s.Lanes[0].Late != 9 || s.Lanes[0].LeaseSeconds == nil || s.BacklogBytes <= 0 {
		t.Errorf("status %+v %v", s, err)
	}
}

// Above the cap with outbox_full: latest states move and no event is appended; below it each owed stream gets one.
func TestCapacity_LatestOwesOneEventPerStreamAboveTheCap_D2(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.OutboxFull = FullLatest })
	at := func(d, seq int) item {
		return b.message(fmt.Sprintf("hubs/h/devices/d%d/state", d), fmt.Sprintf(`{"seq":%d,"state":{"n":%d}}`, seq, seq))
	}
	b.store(at(1, 1), at(2, 1))
	b.service.outbox.full.Store(true)
	b.store(at(1, 2), at(1, 3), at(2, 2), at(3, 1))
	if n := query[int](b, `SELECT count(*) FROM outbox`); n != 2 {
		t.Errorf("%d events while above the cap, want 2", n)
	}
	b.service.outbox.full.Store(false)
	b.store(at(2, 3)) // says it all: no longer owed
	if n := query[int](b, `SELECT count(*) FROM device_state WHERE owed`); n != 2 {
		t.Errorf("%d streams owed, want 2", n)
	}
	sweep := owedSweep{restater: newRestater(b.service.pool, b.service.buckets), outbox: b.service.outbox, metrics: b.service.metrics}
	for want := range []int{2, 0} {
		if n, err := sweep.sweep(t.Context()); err != nil || n != []int{2, 0}[want] {
			t.Errorf("sweep: %d %v", n, err)
		}
	}
	if bad := query[int](b, `SELECT count(*) FROM (SELECT sequence, row_number() OVER (PARTITION BY aggregate_id ORDER BY position) n FROM outbox) x WHERE sequence <> n`); bad != 0 {
		t.Errorf("%d sequences not dense", bad)
	}
	payload := query[[]byte](b, `SELECT payload FROM outbox WHERE aggregate_id = 'd1' ORDER BY position DESC LIMIT 1`)
	if e, err := devicestate.DecodeEvent(payload); err != nil || string(e.State) != `{"n":3}` || e.Sequence != 2 {
		t.Errorf("owed event %+v %v", e, err)
	}
}

// With outbox_full: block nothing is taken and nothing acknowledged above the cap.
func TestCapacity_BlockAcknowledgesNothingAboveTheCap_N3(t *testing.T) {
	t.Parallel()
	broker := testenv.MQTT(t)
	r := startRig(t, testenv.Postgres(t), broker, func(c *Config) { c.OutboxMaxBytes, c.OutboxCheck = 1<<20, testCheck })
	r.waitReady()
	c := device(t, broker, name(t)+"-device")
	for i := range 30 {
		publishAll(t, c, fmt.Sprintf("hubs/%s/devices/d%d/state", name(t), i), 1, large(1, 10)...)
	}
	eventually(t, waitLong, func() error {
		if !r.service.outbox.blocked() {
			return errors.New("not blocked")
		}
		return nil
	})
	before := scalar(t, r.admin, `SELECT batch FROM ingest_lane`)
	publishAll(t, c, fmt.Sprintf("hubs/%s/devices/late/state", name(t)), 1, large(1, 1)...)
	stays(t, func() error {
		if now := scalar(t, r.admin, `SELECT batch FROM ingest_lane`); now > before+1 {
			return fmt.Errorf("batch went from %d to %d above the cap", before, now)
		}
		return nil
	})
	if _, err := r.admin.Exec(t.Context(), `UPDATE outbox_bucket SET cursor = (SELECT max(position) FROM outbox)`); err != nil { // the relay caught up
		t.Fatal(err)
	}
	r.count(301, `SELECT applied FROM ingest_lane`)
}
