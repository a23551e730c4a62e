package devicestate

import (
	"slices"
	"testing"
	"time"
)

// step is what is expected of one report of a batch.
type step struct {
	class Class
	emit  bool
	marks Marks
}

// foldCase is a batch of one stream under one policy.
type foldCase struct {
	name     string
	prev     *State
	reports  []Report
	policy   StreamPolicy
	want     []step
	sequence int64 // of the stream afterwards
}

func runFold(t *testing.T, cases []foldCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := c.policy.WithDefaults()
			got := Fold(c.prev, c.reports, c.reports[len(c.reports)-1].ReceivedAt, &p)
			var steps []step
			for _, d := range got {
				steps = append(steps, step{d.Class, d.Emit, d.Marks})
			}
			if !slices.Equal(steps, c.want) {
				t.Fatalf("got  %v\nwant %v", steps, c.want)
			}
			if s := got[len(got)-1].State.Sequence; s != c.sequence {
				t.Fatalf("sequence %d, want %d", s, c.sequence)
			}
			checkDense(t, c.prev, got)
		})
	}
}

// checkDense is D2: the sequence grows by one per event and by nothing else.
func checkDense(t *testing.T, prev *State, decisions []Decision) {
	t.Helper()
	var at int64
	if prev != nil {
		at = prev.Sequence
	}
	for i, d := range decisions {
		if d.Emit {
			at++
		}
		if d.Changed && d.State.Sequence != at {
			t.Fatalf("decision %d has sequence %d, %d events were emitted", i, d.State.Sequence, at)
		}
	}
}

// buffered is a report made age before it arrived, counter n, content c.
func buffered(n int64, age time.Duration, c string) Report {
	return *report(counter(n), at(time.Hour-age), arrives(time.Hour), content(c))
}

func live(n int64, c string) Report { return buffered(n, 0, c) }

func TestFold_OnOldPolicies_D1(t *testing.T) {
	t.Parallel()
	const old = 20 * time.Minute // max_age is 10 minutes
	batch := []Report{buffered(101, old+3, "B"), buffered(102, old+2, "C"), buffered(103, old+1, "D")}
	slow := stored(func(s *State) { s.Skew = 3 * time.Minute }) // its clock is slow by more than max_skew
	never := stored(func(s *State) { s.SkewKnown = false })
	ok, quiet := step{Applied, true, 0}, step{Coalesced, false, 0}
	gone := step{Discarded, false, 0}
	latest, discard := StreamPolicy{OnOld: OldLatest}, StreamPolicy{OnOld: OldDiscard}
	runFold(t, []foldCase{
		{"overwrite emits all", stored(), batch, StreamPolicy{}, []step{ok, ok, ok}, 43},
		{"latest emits the last old one", stored(), batch, latest, []step{quiet, quiet, ok}, 41},
		{"latest: a live one makes all old ones unneeded", stored(), append(slices.Clone(batch), live(104, "E")), latest, []step{quiet, quiet, quiet, ok}, 41},
		{"latest: live ones all emit", stored(), []Report{live(101, "B"), live(102, "C")}, latest, []step{ok, ok}, 42},
		{"latest: alone in its batch it emits", stored(), batch[:1], latest, []step{ok}, 41},
		{"latest: late and duplicate copies do not count", stored(), []Report{batch[0], batch[0], *report(counter(99), at(-time.Hour), arrives(time.Hour))}, latest,
			[]step{ok, {Duplicate, false, 0}, {Late, false, 0}}, 41},
		{"discard tells nothing", stored(), batch, discard, []step{gone, gone, gone}, 40},
		{"discard: the live one after it is told", stored(), append(slices.Clone(batch), live(104, "E")), discard, []step{gone, gone, gone, ok}, 41},
		{"discard: not for a first report", nil, batch[:1], discard, []step{ok}, 1},
		{"a slow clock is not an old report", slow, batch, discard, []step{ok, ok, ok}, 43},
		{"a clock that was never seen right decides nothing", never, batch[:1], discard, []step{ok}, 41},
		{"exactly max_age is not old", stored(), []Report{buffered(101, 10*time.Minute, "B")}, discard, []step{ok}, 41},
		{"just above max_age is", stored(), []Report{buffered(101, 10*time.Minute+1, "B")}, discard, []step{gone}, 40},
	})
}

func TestFold_EmitPolicies_D1_D2(t *testing.T) {
	t.Parallel()
	changed := StreamPolicy{Emit: EmitChanged, Heartbeat: 30 * time.Second, Expect: time.Minute}
	same := func(n int64, after time.Duration) Report {
		return *report(counter(n), content("A"), at(after), arrives(after))
	}
	told, untold := step{Applied, true, 0}, step{Applied, false, 0}
	retainedCopy := same(101, time.Hour)
	retainedCopy.Retained = true
	ignored := *report(content("Z"))
	ignored.EmitHash = HashOf([]byte(`"A"`)) // differs in an ignored field only
	runFold(t, []foldCase{
		{"every: unchanged content too", stored(), []Report{same(101, time.Second)}, StreamPolicy{}, []step{told}, 41},
		{"changed: unchanged content is not told", stored(), []Report{same(101, time.Second)}, changed, []step{untold}, 40},
		{"changed: other content is", stored(), []Report{*report()}, changed, []step{told}, 41},
		{"changed: other content in an ignored field is not", stored(), []Report{ignored}, changed, []step{untold}, 40},
		{"changed: first of its stream is", nil, []Report{same(7, 0)}, changed, []step{told}, 1},
		{"changed: heartbeat is due", stored(), []Report{same(101, 30*time.Second)}, changed, []step{{Applied, true, MarkHeartbeat}}, 41},
		{"changed: heartbeat is not due", stored(), []Report{same(101, 30*time.Second-time.Microsecond)}, changed, []step{untold}, 40},
		{"changed: a retained copy is no heartbeat", stored(), []Report{retainedCopy}, changed, []step{{Applied, false, MarkRetained}}, 40},
		{"changed: a reboot is news", stored(), []Report{same(0, time.Second)}, changed, []step{{Applied, true, MarkReboot}}, 41},
		{"changed: back and forth are two changes", stored(), []Report{*report(), *report(counter(102), content("A"), at(2*time.Second))}, changed, []step{told, told}, 42},
		{"changed: heartbeats within one batch", stored(), []Report{same(101, 30*time.Second), same(102, 40*time.Second), same(103, 60*time.Second)}, changed,
			[]step{{Applied, true, MarkHeartbeat}, untold, {Applied, true, MarkHeartbeat}}, 42},
		{"none", stored(), []Report{*report(), *report(counter(102), content("C"))}, StreamPolicy{Emit: EmitNone}, []step{untold, untold}, 40},
		{"none: a reboot is not told either", stored(), []Report{same(0, time.Second)}, StreamPolicy{Emit: EmitNone}, []step{{Applied, false, MarkReboot}}, 40},
		{"not applied is never told", stored(), []Report{*report(counter(100), content("A"), at(0)), *report(counter(50), at(-time.Second)), *report(counter(100), at(0))}, StreamPolicy{},
			[]step{{Duplicate, false, 0}, {Late, false, 0}, {Quarantined, false, 0}}, 40},
	})
}

// The state row always moves, whatever is told; a discarded report moves the numbers and not the content.
func TestFold_StateMovesWhateverIsEmitted_D1(t *testing.T) {
	t.Parallel()
	old := buffered(105, 20*time.Minute, "OLD")
	p := StreamPolicy{OnOld: OldDiscard}.WithDefaults()
	d := Fold(stored(), []Report{old}, t0.Add(time.Hour), &p)[0]
	if string(d.State.Content) != `"A"` || d.State.Counter != Some(105) || d.State.Missed != 4 || !d.State.ReceivedAt.Equal(t0) {
		t.Errorf("discarded: content %s counter %v missed %d received %v", d.State.Content, d.State.Counter, d.State.Missed, d.State.ReceivedAt)
	}
	p = StreamPolicy{Emit: EmitNone}.WithDefaults()
	d = Fold(stored(), []Report{*report()}, t0, &p)[0]
	if string(d.State.Content) != `"B"` || d.State.Counter != Some(101) {
		t.Errorf("emit none: content %s counter %v", d.State.Content, d.State.Counter)
	}
}

// Freshness is measured from live applied reports only: neither a retained copy nor a duplicate nor a late one refreshes it.
func TestFold_OnlyLiveAppliedReportsRefreshFreshness_D1(t *testing.T) {
	t.Parallel()
	p := StreamPolicy{}.WithDefaults()
	later := arrives(time.Hour)
	for name, r := range map[string]*Report{
		"retained": report(retained, later), "duplicate": report(counter(100), content("A"), at(0), later), "late": report(counter(5), at(-1), later),
		"conflict": report(counter(100), at(0), later),
	} {
		if d := Fold(stored(), []Report{*r}, r.ReceivedAt, &p)[0]; !d.State.ReceivedAt.Equal(t0) {
			t.Errorf("%s refreshed: %v", name, d.State.ReceivedAt)
		}
	}
	r := report(later)
	if d := Fold(stored(), []Report{*r}, r.ReceivedAt, &p)[0]; !d.State.ReceivedAt.Equal(r.ReceivedAt) {
		t.Errorf("a live report did not refresh: %v", d.State.ReceivedAt)
	}
}
