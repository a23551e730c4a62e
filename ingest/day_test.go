package ingest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
)

// day is a fleet over 24 hours of its own time, on a stepped clock.
type day struct {
	*bench
	devices []*dayDevice
	sent    int64
}

// dayDevice is a device with a clock of its own.
type dayDevice struct {
	id      string
	stream  string
	counter int
	boot    int
	skew    time.Duration
	last    string
}

func (d *day) report(v *dayDevice, madeAt time.Time) item {
	v.counter++
	d.sent++
	v.last = fmt.Sprintf(`{"n":%d,"boot":%d}`, v.counter, v.boot)
	return d.message(fmt.Sprintf("day/h/%s/%s", v.id, v.stream),
		fmt.Sprintf(`{"seq":%d,"boot":%d,"ts":%q,"state":%s}`, v.counter, v.boot, madeAt.Add(v.skew).Format(time.RFC3339Nano), v.last))
}

// dayProfile has one stream per policy for old reports.
const dayProfile = `
name: day
topics: [{pattern: 'day/{hub}/{device}/{stream}'}]
streams:
  overwrite: {fields: {counter: seq, boot: boot, time: ts, state: state}}
  latest:    {fields: {counter: seq, boot: boot, time: ts, state: state}, on_old: latest}
  discard:   {fields: {counter: seq, boot: boot, time: ts, state: state}, on_old: discard}
`

func newDay(t *testing.T) *day {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "day.yaml")
	if err := os.WriteFile(profile, []byte(dayProfile), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &day{bench: newBench(t, func(c *Config) { c.Profiles = []string{profile} })}
	d.now = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	d.writer.now = func() time.Time { return d.now }
	for _, policy := range []string{"overwrite", "latest", "discard"} {
		for i := range 5 {
			d.devices = append(d.devices, &dayDevice{id: fmt.Sprintf("%s-%d", policy, i), stream: policy})
		}
	}
	return d
}

// 24 hours in steps of ten minutes: reboot storms, clocks that jump a year forth and back. Whatever the clocks say, each
// stream ends in its device's last state, nothing is late, nothing is missing, the sequence is dense.
func TestDay_RebootStormsAndClockJumpsEndInTheDevicesState_D1_D2(t *testing.T) {
	t.Parallel()
	d := newDay(t)
	for minute := 0; minute < 24*60; minute += 10 {
		d.now = d.now.Add(10 * time.Minute)
		switch {
		case minute >= 6*60 && minute < 7*60: // a storm: every device starts again at each report
			for _, v := range d.devices {
				v.boot++
				v.counter = 0
			}
		case minute == 10*60:
			d.devices[0].skew, d.devices[5].skew, d.devices[10].skew = 365*24*time.Hour, 365*24*time.Hour, 365*24*time.Hour
		case minute == 14*60:
			d.devices[1].skew, d.devices[6].skew = -365*24*time.Hour, -365*24*time.Hour
		case minute == 18*60: // all clocks are set right
			for _, v := range d.devices {
				v.skew = 0
			}
		}
		var items []item
		for _, v := range d.devices {
			items = append(items, d.report(v, d.now))
		}
		d.store(items...)
	}
	d.check(t)
	got := d.classes()
	if got[devicestate.Applied]+got[devicestate.Discarded]+got[devicestate.Coalesced] != d.sent {
		t.Errorf("classes %v of %d sent", got, d.sent)
	}
	// A clock that jumps back a year looks like a buffer of a year only to the devices with a policy for it.
	if n := query[int64](d.bench, `SELECT count(*) FROM stream_gap`); n != 0 {
		t.Errorf("%d gaps", n)
	}
}

// check: every stream holds its device's last state, and its events are dense.
func (d *day) check(t *testing.T) {
	t.Helper()
	for _, v := range d.devices {
		if got := query[string](d.bench, `SELECT convert_from(state, 'UTF8') FROM device_state WHERE device_id = $1`, v.id); got != v.last {
			t.Errorf("%s ends in %s, the device is at %s", v.id, got, v.last)
		}
	}
	if bad := query[int](d.bench, `SELECT count(*) FROM (SELECT sequence, row_number() OVER (PARTITION BY aggregate_id ORDER BY position) AS n FROM outbox) x WHERE sequence <> n`); bad != 0 {
		t.Errorf("%d events out of order or not dense", bad)
	}
	if bad := query[int](d.bench, `SELECT count(*) FROM device_state s WHERE sequence <> (SELECT count(*) FROM outbox o WHERE o.aggregate_id = s.device_id)`); bad != 0 {
		t.Errorf("%d streams whose sequence is not their number of events", bad)
	}
}

// Devices come back after a week with 10,000 buffered reports, then a live one.
func TestDay_DevicesReturnAfterAWeekUnderEachPolicy_D1_D2_N4(t *testing.T) {
	t.Parallel()
	d := newDay(t)
	d.devices = []*dayDevice{d.devices[0], d.devices[5], d.devices[10]}
	for range 3 { // live, so that their clocks are known to be right
		d.now = d.now.Add(time.Minute)
		d.store(d.report(d.devices[0], d.now), d.report(d.devices[1], d.now), d.report(d.devices[2], d.now))
	}
	left := d.now
	d.now = d.now.Add(7 * 24 * time.Hour)
	const buffered, perBatch = 10_000, 1000
	for from := 0; from < buffered; from += perBatch {
		for _, v := range d.devices {
			var items []item
			for i := range perBatch {
				items = append(items, d.report(v, left.Add(time.Duration(from+i+1)*time.Minute)))
			}
			d.store(items...)
		}
	}
	d.store(d.report(d.devices[0], d.now), d.report(d.devices[1], d.now), d.report(d.devices[2], d.now))
	d.check(t)
	events := func(v *dayDevice) int64 {
		return query[int64](d.bench, `SELECT count(*) FROM outbox WHERE aggregate_id = $1`, v.id)
	}
	if n := events(d.devices[0]); n != 3+buffered+1 {
		t.Errorf("overwrite: %d events, want all", n)
	}
	got := d.classes()
	if n := events(d.devices[1]); n != 3+buffered+1-got[devicestate.Coalesced] || n > 3+buffered/perBatch+1 {
		t.Errorf("latest: %d events, %d coalesced", n, got[devicestate.Coalesced])
	}
	if n := events(d.devices[2]); n != 3+1 || got[devicestate.Discarded] != buffered {
		t.Errorf("discard: %d events, %d discarded", n, got[devicestate.Discarded])
	}
	if got[devicestate.Applied]+got[devicestate.Coalesced]+got[devicestate.Discarded] != d.sent || len(got) != 3 {
		t.Errorf("classes %v of %d sent", got, d.sent)
	}
}
