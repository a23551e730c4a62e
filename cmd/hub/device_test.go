package main

import (
	"encoding/json"
	"testing"
	"time"
)

type decoded struct {
	Seq, Boot int64
	Ts        time.Time
}

// life runs a device for a while and returns what it published in order, and how often it went away.
func life(t *testing.T, wanted trait, turns int) (reports []decoded, broken, away int) {
	t.Helper()
	i := 0
	for traitOf(i/hubs) != wanted {
		i += hubs
	}
	d := newDevice(i, "hub-1", "agv", 1000)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range turns {
		now = now.Add(time.Second)
		act := d.turn(now)
		if act.offline > 0 || act.quiet > 0 {
			away++
		}
		for _, payload := range act.payloads {
			var r decoded
			if json.Unmarshal(payload, &r) != nil {
				broken++
				continue
			}
			reports = append(reports, r)
		}
	}
	return reports, broken, away
}

func TestDevice_SteadyCountsWithoutGap(t *testing.T) {
	t.Parallel()
	reports, broken, away := life(t, steady, 500)
	if len(reports) != 500 || broken != 0 || away != 0 {
		t.Fatalf("%d reports, %d broken, %d times away", len(reports), broken, away)
	}
	for i, r := range reports {
		if r.Seq != int64(i+1) || r.Boot != 1000 {
			t.Fatalf("report %d has counter %d and boot %d", i+1, r.Seq, r.Boot)
		}
	}
}

func TestDevice_EachTraitMisbehavesInItsWay(t *testing.T) {
	t.Parallel()
	reports, _, _ := life(t, rebooting, 500)
	if last := reports[len(reports)-1]; last.Boot <= 1000 || last.Seq >= 500 {
		t.Errorf("rebooting: boot %d, counter %d after 500 turns", last.Boot, last.Seq)
	}
	if _, _, away := life(t, roaming, 500); away == 0 {
		t.Error("roaming: was never away")
	}
	if _, _, away := life(t, dozing, 500); away == 0 {
		t.Error("dozing: was never quiet")
	}
	if _, broken, _ := life(t, mumbling, 500); broken == 0 {
		t.Error("mumbling: every report was a report")
	}
	if reports, _, _ := life(t, lying, 1); reports[0].Ts.Year() == 2026 && reports[0].Ts.Hour() == 0 {
		t.Errorf("lying: says %v, which is true", reports[0].Ts)
	}
	checkStutter(t)
}

func checkStutter(t *testing.T) {
	t.Helper()
	reports, _, _ := life(t, stuttering, 500)
	var again, older, gaps int
	for i := 1; i < len(reports); i++ {
		switch step := reports[i].Seq - reports[i-1].Seq; {
		case step == 0:
			again++
		case step < 0:
			older++
		case step > 1:
			gaps++
		}
	}
	if again == 0 || older == 0 || gaps == 0 {
		t.Errorf("stuttering: %d sent twice, %d old ones, %d gaps", again, older, gaps)
	}
}
