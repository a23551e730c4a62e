package outbox

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkExplained fails unless each device's first deliveries increase and every hole is named in ce_skipped of the event
// behind it (C2). It returns the last sequence per device and how many sequences were skipped.
func checkExplained(t testing.TB, all []delivery) (last map[string]int64, skipped int64) {
	t.Helper()
	y := newTally()
	for _, d := range all {
		y.add(d)
	}
	if y.wrong != nil {
		t.Fatal(y.wrong)
	}
	return y.last, y.skipped
}

func covers(header string, seq int64) bool {
	for part := range strings.SplitSeq(header, ",") {
		numbers, _, _ := strings.Cut(part, ":")
		from, to, isRange := strings.Cut(numbers, "-")
		if !isRange {
			to = from
		}
		a, _ := strconv.ParseInt(from, 10, 64)
		b, _ := strconv.ParseInt(to, 10, 64)
		if a <= seq && seq <= b {
			return true
		}
	}
	return false
}

// reachedAll reports whether every device's sequence n was seen.
func reachedAll(devices int, n int64) func([]delivery) bool {
	seen := make(map[string]bool)
	done := 0
	return func(all []delivery) bool {
		for ; done < len(all); done++ {
			if all[done].sequence >= n {
				seen[all[done].device] = true
			}
		}
		return len(seen) >= devices
	}
}

func TestRelay_LatestPublishesTheNewestAndExplainsTheRest_O5_C2(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const devices, events = 500, 60
	b.fill(devices, events)
	latest := func(c *Config) { c.Backlog, c.BacklogAge, c.WindowRows = BacklogLatest, time.Millisecond, 64 }
	r := b.start(latest)
	all := b.read(30*time.Second, reachedAll(devices, events))
	last, skipped := checkExplained(t, all)
	for device, seq := range last {
		if seq != events {
			t.Errorf("%s ends at %d, want %d", device, seq, events)
		}
	}
	if skipped == 0 {
		t.Error("nothing was superseded: the policy did nothing")
	}
	t.Logf("%d records for %d rows, %d superseded", len(all), devices*events, skipped)
	eventually(t, "no skipped range is left", 10*time.Second, func() bool { return b.count(`SELECT count(*) FROM outbox_skipped`) == 0 })
	r.stop()

	b.fill(devices, 3) // an owner with the other policy goes on, dense
	b.start()
	all = b.read(30*time.Second, reachedAll(devices, events+3))
	if last, _ := checkExplained(t, all); last["device-0"] != events+3 {
		t.Errorf("device-0 ends at %d", last["device-0"])
	}
}

func TestRelay_AnOwnerWithAnotherPolicyObeysRecordedSkips_O2(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const devices, events = 200, 40
	b.fill(devices, events)
	// An owner with the policy latest recorded its plan and died before it sent anything.
	conn := b.connect("hubstate_relay")
	cursors := make(map[int16]int64)
	for bucket := range b.cfg.Buckets {
		cursors[int16(bucket)] = 0
	}
	must(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return planAll(t.Context(), tx, cursors, make(map[int16]*plan)) }))
	b.start()
	all := b.read(30*time.Second, reachedAll(devices, events))
	_, skipped := checkExplained(t, all)
	if want := int64(devices * (events - 1)); skipped != want {
		t.Errorf("%d sequences skipped, want all %d that were recorded", skipped, want)
	}
}
