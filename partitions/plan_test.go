package partitions

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// update rewrites the golden plans: go test ./partitions -run Golden -update
var update = flag.Bool("update", false, "rewrite golden files")

const hour = time.Hour

// scenarios are the situations of issue 6; each writes the plans of its turns into testdata/plan/NAME.txt.
func scenarios() map[string]func(t *testing.T) *world {
	return map[string]func(t *testing.T) *world{
		"first_start":     firstStart,
		"steady_day":      steadyDay,
		"long_stop":       longStop,
		"clock_back":      clockBack,
		"clock_forward":   clockForward,
		"relay_stalled":   relayStalled,
		"archive_failing": archiveFailing,
		"interval_change": intervalChange,
		"daylight_saving": daylightSaving,
		"interrupted":     interrupted,
		"by_hand":         byHand,
		"one_minute":      oneMinute,
		"one_month":       oneMonth,
	}
}

func short() Spec { return Spec{Runway: 4 * hour, RetainSent: 6 * hour} }

func firstStart(t *testing.T) *world {
	w := newWorld(t, "2026-03-01 10:20", Spec{})
	w.tick()
	w.note("the second turn has nothing to do")
	w.now = w.now.Add(time.Minute)
	w.tick()
	return w
}

func steadyDay(t *testing.T) *world {
	spec := short()
	spec.Archive, spec.KeepAttached = true, 1
	spec.Settle = hour
	spec.Retain = []Retention{{"dead", 90 * 24 * hour}, {"rejects", 30 * 24 * hour}}
	w := newWorld(t, "2026-03-01 00:00", spec)
	w.run(24*hour, hour)
	return w
}

func longStop(t *testing.T) *world {
	w := newWorld(t, "2026-03-01 10:20", short())
	w.run(2*hour, hour)
	w.note("nobody looks for a week; writers made no partition, nothing came in")
	w.now = w.now.Add(7 * 24 * hour)
	w.tick()
	w.note("a quarter of an hour later the clock is trusted again")
	w.now = w.now.Add(15 * time.Minute)
	w.tick()
	return w
}

func clockBack(t *testing.T) *world {
	w := newWorld(t, "2026-03-02 10:00", short())
	w.spec.Settle = hour
	w.run(3*hour, hour)
	w.note("the clock steps back by a day: rows are created at the floor, in the partition that was current")
	w.now = w.now.Add(-24 * hour)
	w.run(2*hour, hour)
	w.note("the clock is set right")
	w.now = w.now.Add(24 * hour)
	w.run(2*hour, hour)
	return w
}

func clockForward(t *testing.T) *world {
	w := newWorld(t, "2026-03-02 10:00", short())
	w.run(hour, 15*time.Minute)
	w.note("the clock steps forward by a day: nothing is sealed or dropped on such a clock")
	w.now = w.now.Add(24 * hour)
	w.tick()
	w.note("five minutes later it is set right: rows go where they went before, what was attached stays")
	w.now = w.now.Add(5*time.Minute - 24*hour)
	w.run(2*hour, 15*time.Minute)
	return w
}

func relayStalled(t *testing.T) *world {
	w := newWorld(t, "2026-03-01 10:00", short())
	w.spec.Settle = hour
	w.tick()
	w.note("bucket 7 publishes nothing more; it has rows in the partitions of 10:00 and 12:00 only")
	w.undrained["outbox_p20260301_1000"] = "bucket 7: row 1200 lies above its cursor 1100"
	w.undrained["outbox_p20260301_1200"] = "bucket 7: row 3050 lies above its cursor 1100"
	w.now = w.now.Add(hour)
	w.run(4*hour, hour)
	w.note("bucket 7 has caught up")
	clear(w.undrained)
	w.tick()
	return w
}

func archiveFailing(t *testing.T) *world {
	w := newWorld(t, "2026-03-01 10:00", short())
	w.spec.Archive, w.spec.RetainSent, w.spec.Settle = true, hour, hour
	w.archiveFails = true
	w.run(3*hour, 30*time.Minute)
	w.note("the disk has room again")
	w.archiveFails = false
	w.run(hour, 30*time.Minute)
	return w
}

func intervalChange(t *testing.T) *world {
	w := newWorld(t, "2026-03-01 10:20", short())
	w.spec.Settle = hour
	w.tick()
	w.note("the interval becomes 15 minutes: what is attached stays, what stands ready is made anew")
	w.spec.Interval = hour / 4
	w.spec.Runway = 2 * hour
	w.now = w.now.Add(5 * time.Minute)
	w.tick()
	w.now = at(t, "2026-03-01 12:50")
	w.spec.Settle = 4 * hour
	w.tick()
	w.now = at(t, "2026-03-01 13:05")
	w.tick()
	w.note("and 1 hour again: the hour under way is finished by a piece")
	w.spec.Interval, w.spec.Runway = hour, 4*hour
	w.now = at(t, "2026-03-01 13:10")
	w.tick()
	return w
}

// daylightSaving runs through the night in which Berlin skips an hour; names, ranges and reasons are in UTC.
func daylightSaving(t *testing.T) *world {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("no time zone data: %v", err)
	}
	w := newWorld(t, "2026-03-28 23:30", short())
	w.spec.Settle = hour
	w.now = w.now.In(berlin)
	w.run(4*hour, hour)
	return w
}

func interrupted(t *testing.T) *world {
	w := newWorld(t, "2026-03-01 10:00", short())
	w.spec.Settle = hour
	w.run(2*hour, hour)
	w.note("killed within the detach of 11:00, after the one of 10:00 from the history, and with a runway table dropped")
	w.find("outbox_p20260301_1100").Place, w.find("outbox_p20260301_1100").Phase = Detaching, Sealing
	w.find("outbox_p20260301_1000").Place = Alone
	w.find("outbox_p20260301_1500").Place = Absent
	w.state.Floor = at(t, "2026-03-01 12:00")
	for _, a := range Plan(w.state, w.now, w.spec) {
		fmt.Fprintf(&w.log, "  %s\n", a)
	}
	w.note("and the turn after the detach was finalized")
	w.find("outbox_p20260301_1100").Place = Alone
	w.tick()
	return w
}

func byHand(t *testing.T) *world {
	w := newWorld(t, "2026-03-01 10:00", short())
	w.tick()
	w.note("somebody detached the current partition and attached one of their own")
	w.find("outbox_p20260301_1000").Place = Alone
	own := Partition{Name: "outbox_mine", From: at(t, "2026-02-28 00:00"), To: at(t, "2026-03-01 00:00"), Place: Attached}
	w.state.Partitions = append(w.state.Partitions, own)
	w.undrained["outbox_mine"] = "bucket 1: row 7 lies above its cursor 3"
	w.tick()
	return w
}

func oneMinute(t *testing.T) *world {
	w := newWorld(t, "2026-03-01 10:00", Spec{Interval: time.Minute, Runway: 5 * time.Minute, RetainSent: 3 * time.Minute})
	w.run(8*time.Minute, time.Minute)
	return w
}

func oneMonth(t *testing.T) *world {
	w := newWorld(t, "2026-03-01 10:00", Spec{Interval: 30 * 24 * hour, RetainSent: 90 * 24 * hour, Settle: 40 * 24 * hour})
	w.run(240*24*hour, 30*24*hour)
	return w
}

func TestPlan_Golden(t *testing.T) {
	t.Parallel()
	for name, scenario := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden(t, filepath.Join("testdata", "plan", name+".txt"), scenario(t).log.String())
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nLook at the difference with -update and git diff.", path, got)
	}
}
