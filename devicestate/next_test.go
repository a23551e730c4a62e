package devicestate

import (
	"slices"
	"testing"
	"time"
)

// t0 is the receive time of the last applied report of the stored state in these tables; device clocks run with ours.
var t0 = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// stored is a live stream at counter 100, seen at t0, content A.
func stored(change ...func(*State)) *State {
	s := &State{
		Hub: "h", Epoch: 1, Sequence: 40, Counter: Some(100), OccurredAt: t0, ReceivedAt: t0, SkewKnown: true,
		Content: []byte(`"A"`), Hash: HashOf([]byte(`"A"`)), EmittedHash: HashOf([]byte(`"A"`)), EmittedAt: t0,
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// report is the next live report: counter 101, one second later, content B.
func report(change ...func(*Report)) *Report {
	r := &Report{Device: "d", Stream: "state", Hub: "h", Counter: Some(101), Time: t0.Add(time.Second), ReceivedAt: t0.Add(time.Second)}
	content("B")(r)
	for _, c := range change {
		c(r)
	}
	return r
}

func content(c string) func(*Report) {
	return func(r *Report) {
		r.State = []byte(`"` + c + `"`)
		r.Hash = HashOf(r.State)
		r.EmitHash = r.Hash
	}
}

func counter(n int64) func(*Report)    { return func(r *Report) { r.Counter = Some(n) } }
func boot(n int64) func(*Report)       { return func(r *Report) { r.Boot = Some(n) } }
func prevBoot(n int64) func(*State)    { return func(s *State) { s.Boot = Some(n) } }
func prevCounter(n int64) func(*State) { return func(s *State) { s.Counter = Some(n) } }
func noCounter(r *Report)              { r.Counter = Number{} }
func prevNoCounter(s *State)           { s.Counter = Number{} }
func noTime(r *Report)                 { r.Time = time.Time{} }
func badTime(r *Report)                { r.Time, r.BadTime = time.Time{}, true }
func prevNoTime(s *State)              { s.OccurredAt = time.Time{} }
func retained(r *Report)               { r.Retained = true }
func redelivered(r *Report)            { r.Redelivered = true }

// at moves the device time, arrives moves our receive time, both relative to t0.
func at(d time.Duration) func(*Report)      { return func(r *Report) { r.Time = t0.Add(d) } }
func arrives(d time.Duration) func(*Report) { return func(r *Report) { r.ReceivedAt = t0.Add(d) } }

// rebooted is a stored state whose boot began by the device's clock at started, and reached us at received.
func rebooted(started, received time.Duration) func(*State) {
	return func(s *State) { s.BootStartedAt, s.BootReceivedAt = t0.Add(started), t0.Add(received) }
}

// nextCase is one line of the table of Next. Its row is the number in docs/architecture.md.
type nextCase struct {
	name   string
	prev   *State
	report *Report
	policy StreamPolicy
	class  Class
	row    int
	marks  Marks
	gaps   []Range
}

func runNext(t *testing.T, cases []nextCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := c.policy.WithDefaults()
			d := Next(c.prev, c.report, c.report.ReceivedAt, &p)
			if d.Class != c.class || d.Row != c.row || d.Marks != c.marks || !slices.Equal(d.Gaps, c.gaps) {
				t.Fatalf("got class %v row %d marks %q gaps %v, want class %v row %d marks %q gaps %v",
					d.Class, d.Row, d.Marks, d.Gaps, c.class, c.row, c.marks, c.gaps)
			}
			checkMoves(t, c, d)
		})
	}
}

// checkMoves holds for every row: only applied reports move content and counter, and each class moves its own total.
func checkMoves(t *testing.T, c nextCase, d Decision) {
	t.Helper()
	before := State{}
	if c.prev != nil {
		before = *c.prev
	}
	if d.Class == Applied {
		if string(d.State.Content) != string(c.report.State) || (c.report.Counter.OK && d.State.Counter != c.report.Counter) {
			t.Fatalf("applied, but the state is %s at %v", d.State.Content, d.State.Counter)
		}
		var missed int64
		for _, g := range d.Gaps {
			missed += g.Size()
		}
		if d.State.Missed-before.Missed != missed {
			t.Fatalf("missed moved by %d, gaps hold %d", d.State.Missed-before.Missed, missed)
		}
		return
	}
	after := d.State
	after.Late, after.Duplicate, after.Quarantined = before.Late, before.Duplicate, before.Quarantined
	if !statesEqual(after, before) {
		t.Fatalf("class %v moved the state:\n%+v\n%+v", d.Class, before, after)
	}
	moved := [3]int64{d.State.Late - before.Late, d.State.Duplicate - before.Duplicate, d.State.Quarantined - before.Quarantined}
	want := map[Class][3]int64{Late: {1, 0, 0}, Duplicate: {0, 1, 0}, Quarantined: {0, 0, 1}}[d.Class]
	if moved != want {
		t.Fatalf("class %v moved totals late, duplicate, quarantined by %v", d.Class, moved)
	}
	if (d.Class == Quarantined) != (d.Reject != nil) {
		t.Fatalf("class %v with reject %v", d.Class, d.Reject)
	}
}

func statesEqual(a, b State) bool {
	return string(a.Content) == string(b.Content) && func() bool {
		a.Content, b.Content = nil, nil
		return stateKey(a) == stateKey(b)
	}()
}

// stateKey is a State without its slice, so that == works.
func stateKey(s State) any {
	return struct {
		hub                                  string
		epoch, sequence                      int64
		counter, boot                        Number
		bootStarted, bootReceived, occ, rec  time.Time
		suspect, retained                    bool
		skew                                 time.Duration
		skewKnown                            bool
		hash, emitted                        Hash
		emittedAt                            time.Time
		missed, late, duplicate, quarantined int64
		rebootPending, owed                  bool
	}{
		s.Hub, s.Epoch, s.Sequence, s.Counter, s.Boot, s.BootStartedAt, s.BootReceivedAt, s.OccurredAt, s.ReceivedAt, s.ClockSuspect,
		s.Retained, s.Skew, s.SkewKnown, s.Hash, s.EmittedHash, s.EmittedAt, s.Missed, s.Late, s.Duplicate, s.Quarantined, s.RebootPending, s.Owed,
	}
}

func TestNext_Rows0To3_RejectsWillsAndBaselines_D1(t *testing.T) {
	t.Parallel()
	conn := StreamPolicy{Kind: KindConnection}
	bad := func(r *Report) { r.Reject = reject(ReasonNotJSON, "", "x") }
	otherHub := func(r *Report) { r.Hub = "other" }
	runNext(t, []nextCase{
		{"0 another hub", stored(), report(otherHub), StreamPolicy{}, Quarantined, 0, 0, nil},
		{"0 another hub beats a bad payload", stored(), report(otherHub, bad), StreamPolicy{}, Quarantined, 0, 0, nil},
		{"0 not for a first report", nil, report(otherHub), StreamPolicy{}, Applied, 3, 0, nil},
		{"1 payload was rejected", stored(), report(bad), StreamPolicy{}, Quarantined, 1, 0, nil},
		{"1 payload was rejected, first of its stream", nil, report(bad), StreamPolicy{}, Quarantined, 1, 0, nil},
		{"1 payload was rejected on a connection stream", stored(), report(bad), conn, Quarantined, 1, 0, nil},
		{"1 required counter is absent", stored(), report(noCounter), StreamPolicy{}, Quarantined, 1, 0, nil},
		{"1 not with an optional counter", stored(), report(noCounter), StreamPolicy{Counter: CounterOptional}, Applied, 9, 0, nil},
		{"1 beats a forced reboot", stored(func(s *State) { s.RebootPending = true }), report(noCounter), StreamPolicy{}, Quarantined, 1, 0, nil},

		{"2 a will: old counter, old time", stored(), report(counter(0), at(-time.Hour)), conn, Applied, 2, 0, nil},
		{"2 a birth with a jump of the counter has no gap", stored(), report(counter(500)), conn, Applied, 2, 0, nil},
		{"2 no counter, no time", stored(), report(noCounter, noTime), conn, Applied, 2, 0, nil},
		{"2 same content", stored(), report(content("A"), counter(0)), conn, Duplicate, 2, 0, nil},
		{"2 redelivered copy after the content moved on", stored(), report(redelivered), conn, Duplicate, 2, 0, nil},
		{"2 beats boots", stored(prevBoot(7)), report(boot(3)), conn, Applied, 2, 0, nil},

		{"3 baseline at any counter has no gap", nil, report(counter(57)), StreamPolicy{}, Applied, 3, 0, nil},
		{"3 baseline with an old time", nil, report(at(-24 * time.Hour)), StreamPolicy{}, Applied, 3, 0, nil},
		{"3 baseline without time", nil, report(noTime), StreamPolicy{}, Applied, 3, 0, nil},
		{"3 baseline from a retained copy", nil, report(retained), StreamPolicy{}, Applied, 3, MarkRetained, nil},
		{"3 baseline of a connection stream", nil, report(), conn, Applied, 3, 0, nil},
		{"3 baseline with a clock in the future", nil, report(at(time.Hour)), StreamPolicy{}, Applied, 3, MarkClockSuspect, nil},
		{"3 baseline with a clock before 2000", nil, report(func(r *Report) { r.Time = time.Unix(0, 0).UTC() }), StreamPolicy{}, Applied, 3, MarkClockSuspect, nil},
		{"3 baseline with an unreadable time", nil, report(badTime), StreamPolicy{}, Applied, 3, MarkClockSuspect, nil},
	})
}

func TestNext_Rows4To6_Boots_D1(t *testing.T) {
	t.Parallel()
	pending := func(s *State) { s.RebootPending = true }
	bdSeq := StreamPolicy{BootModulus: 256}
	runNext(t, []nextCase{
		{"4 forced reboot makes a lower counter new", stored(pending), report(counter(5), at(-time.Hour)), StreamPolicy{}, Applied, 4, MarkReboot, nil},
		{"4 the same without it is late", stored(), report(counter(5), at(-time.Hour)), StreamPolicy{}, Late, 18, 0, nil},
		{"4 beats a lower boot", stored(pending, prevBoot(7)), report(boot(3)), StreamPolicy{}, Applied, 4, MarkReboot, nil},
		{"4 beats a duplicate", stored(pending), report(counter(100), content("A"), at(0)), StreamPolicy{}, Applied, 4, MarkReboot, nil},

		{"5 higher boot, lower counter", stored(prevBoot(7)), report(boot(8), counter(0), at(-time.Hour)), StreamPolicy{}, Applied, 5, MarkReboot, nil},
		{"5 higher boot, higher counter: no gap", stored(prevBoot(7)), report(boot(8), counter(500)), StreamPolicy{}, Applied, 5, MarkReboot, nil},
		{"5 higher boot, same counter and content", stored(prevBoot(7)), report(boot(8), counter(100), content("A")), StreamPolicy{}, Applied, 5, MarkReboot, nil},
		{"5 bdSeq wraps 255 to 0", stored(prevBoot(255)), report(boot(0), counter(0)), bdSeq, Applied, 5, MarkReboot, nil},
		{"5 without modulus 255 to 0 is a step back", stored(prevBoot(255)), report(boot(0), counter(0)), StreamPolicy{}, Late, 6, 0, nil},
		{"5 counter none and a higher boot", stored(prevBoot(7)), report(boot(8), noCounter), StreamPolicy{Counter: CounterNone}, Applied, 5, MarkReboot, nil},
		{"6 lower boot, higher counter", stored(prevBoot(7)), report(boot(6), counter(500)), StreamPolicy{}, Late, 6, 0, nil},
		{"6 lower boot, newer time", stored(prevBoot(7)), report(boot(6), at(time.Minute), arrives(time.Minute)), StreamPolicy{}, Late, 6, 0, nil},
		{"6 bdSeq 0 after 255 was left", stored(prevBoot(0)), report(boot(255)), bdSeq, Late, 6, 0, nil},
		{"same boot goes on to the counter", stored(prevBoot(7)), report(boot(7)), StreamPolicy{}, Applied, 14, 0, nil},
		{"boot absent in the report is the same boot", stored(prevBoot(7)), report(), StreamPolicy{}, Applied, 14, 0, nil},
		{"boot absent in the state is the same boot", stored(), report(boot(7)), StreamPolicy{}, Applied, 14, 0, nil},
	})
}

func TestNext_Rows7To9_WithoutCounter_D1(t *testing.T) {
	t.Parallel()
	none := StreamPolicy{Counter: CounterNone}
	optional := StreamPolicy{Counter: CounterOptional}
	runNext(t, []nextCase{
		{"7 recognised by the lane's tail", stored(), report(noCounter, redelivered), none, Duplicate, 7, 0, nil},
		{"7 same content, same time", stored(), report(noCounter, content("A"), at(0)), none, Duplicate, 7, 0, nil},
		{"7 same content, older time", stored(), report(noCounter, content("A"), at(-time.Second)), none, Duplicate, 7, 0, nil},
		{"7 same content, retained, no time", stored(), report(noCounter, content("A"), noTime, retained), none, Duplicate, 7, 0, nil},
		{"8 other content, older time", stored(), report(noCounter, at(-time.Second)), none, Late, 8, 0, nil},
		{"8 one microsecond older", stored(), report(noCounter, at(-time.Microsecond)), none, Late, 8, 0, nil},
		{"9 same content, newer time: a sign of life", stored(), report(noCounter, content("A")), none, Applied, 9, 0, nil},
		{"9 same content, no time: a sign of life", stored(), report(noCounter, content("A"), noTime), none, Applied, 9, 0, nil},
		{"9 other content, same time", stored(), report(noCounter, at(0)), none, Applied, 9, 0, nil},
		{"9 other content, no time", stored(), report(noCounter, noTime), none, Applied, 9, 0, nil},
		{"9 other content, suspect time decides nothing", stored(), report(noCounter, at(-30*365*24*time.Hour)), none, Applied, 9, MarkClockSuspect, nil},
		{"9 older than a stored time that is unknown", stored(prevNoTime), report(noCounter, at(-time.Hour)), none, Applied, 9, 0, nil},
		{"counter none ignores a counter that is there", stored(), report(counter(3)), none, Applied, 9, 0, nil},
		{"optional: without one as with none", stored(), report(noCounter, at(-time.Second)), optional, Late, 8, 0, nil},
		{"optional: the stored state has none", stored(prevNoCounter), report(counter(3)), optional, Applied, 9, 0, nil},
		{"optional: both have one, so it decides", stored(), report(counter(3), at(-time.Second)), optional, Late, 18, 0, nil},
	})
}

func TestNext_Rows10To12_EqualCounter_D1(t *testing.T) {
	t.Parallel()
	same := counter(100)
	runNext(t, []nextCase{
		{"10 newer time, other content", stored(), report(same), StreamPolicy{}, Applied, 10, MarkReboot, nil},
		{"10 newer time, same content: 0 to 0 after a reboot", stored(prevCounter(0)), report(counter(0), content("A")), StreamPolicy{}, Applied, 10, MarkReboot, nil},
		{"11 same content, same time", stored(), report(same, content("A"), at(0)), StreamPolicy{}, Duplicate, 11, 0, nil},
		{"11 same content, older time", stored(), report(same, content("A"), at(-time.Second)), StreamPolicy{}, Duplicate, 11, 0, nil},
		{"11 same content, no time", stored(), report(same, content("A"), noTime), StreamPolicy{}, Duplicate, 11, 0, nil},
		{"11 same content, suspect time", stored(), report(same, content("A"), at(time.Hour)), StreamPolicy{}, Duplicate, 11, 0, nil},
		{"11 recognised by the lane's tail, whatever its time", stored(), report(same, redelivered), StreamPolicy{}, Duplicate, 11, 0, nil},
		{"12 other content, same time", stored(), report(same, at(0)), StreamPolicy{}, Quarantined, 12, 0, nil},
		{"12 other content, older time", stored(), report(same, at(-time.Second)), StreamPolicy{}, Quarantined, 12, 0, nil},
		{"12 other content, no time", stored(), report(same, noTime), StreamPolicy{}, Quarantined, 12, 0, nil},
		{"12 other content, newer but suspect time", stored(), report(same, at(time.Hour)), StreamPolicy{}, Quarantined, 12, 0, nil},
		{"12 other content, stored time unknown", stored(prevNoTime), report(same), StreamPolicy{}, Quarantined, 12, 0, nil},
	})
}

func TestNext_Rows13To14_HigherCounter_D1(t *testing.T) {
	t.Parallel()
	// The boot began at -10s by the device and reached us at -9s; the counter is at 3 by now.
	young := func() *State { return stored(prevCounter(3), rebooted(-10*time.Second, -9*time.Second)) }
	short := StreamPolicy{StragglerWindow: 5 * time.Second}
	runNext(t, []nextCase{
		{"13 a report of the boot before", young(), report(counter(99), at(-11*time.Second)), StreamPolicy{}, Late, 13, 0, nil},
		{"13 at the end of the window", young(), report(counter(99), at(-11*time.Second), arrives(51*time.Second)), StreamPolicy{}, Late, 13, 0, nil},
		{"14 past the window", young(), report(counter(99), at(-11*time.Second), arrives(51*time.Second+1)), StreamPolicy{}, Applied, 14, 0, []Range{{4, 98}}},
		{"14 past a shorter window", young(), report(counter(4), at(-11*time.Second)), short, Applied, 14, 0, nil},
		{"14 device time at the boot's start", young(), report(counter(4), at(-10*time.Second)), StreamPolicy{}, Applied, 14, 0, nil},
		{"14 no device time", young(), report(counter(4), noTime), StreamPolicy{}, Applied, 14, 0, nil},
		{"14 suspect device time never decides a straggler", young(), report(counter(4), at(-30*365*24*time.Hour)), StreamPolicy{}, Applied, 14, MarkClockSuspect, nil},
		{"14 the boot's start had no plausible time", stored(prevCounter(3), func(s *State) { s.BootReceivedAt = t0 }), report(counter(4), at(-time.Hour)), StreamPolicy{}, Applied, 14, 0, nil},
		{"14 no reboot was seen", stored(), report(at(-time.Hour)), StreamPolicy{}, Applied, 14, 0, nil},

		{"14 the next", stored(), report(), StreamPolicy{}, Applied, 14, 0, nil},
		{"14 the next with the same content", stored(), report(content("A")), StreamPolicy{}, Applied, 14, 0, nil},
		{"14 one is missing", stored(), report(counter(102)), StreamPolicy{}, Applied, 14, 0, []Range{{101, 101}}},
		{"14 many are missing", stored(), report(counter(1000)), StreamPolicy{}, Applied, 14, 0, []Range{{101, 999}}},
		{"14 to the largest counter", stored(), report(counter(1<<63 - 1)), StreamPolicy{}, Applied, 14, 0, []Range{{101, 1<<63 - 2}}},
		{"14 older device time with a higher counter: the counter decides", stored(), report(at(-time.Minute)), StreamPolicy{}, Applied, 14, 0, nil},
		{"14 retained", stored(), report(retained), StreamPolicy{}, Applied, 14, MarkRetained, nil},
	})
}

func TestNext_Rows15To18_LowerCounter_D1(t *testing.T) {
	t.Parallel()
	wrap := StreamPolicy{Modulus: 1 << 16}
	const top = 1<<16 - 1
	quiet := 5*time.Minute + 1 // just past reset_quiet
	runNext(t, []nextCase{
		{"15 top to 0", stored(prevCounter(top)), report(counter(0)), wrap, Applied, 15, MarkWrap, nil},
		{"15 over both borders with two gaps", stored(prevCounter(top - 2)), report(counter(2)), wrap, Applied, 15, MarkWrap, []Range{{top - 1, top}, {0, 1}}},
		{"15 at the largest small distance", stored(prevCounter(top)), report(counter(99)), wrap, Applied, 15, MarkWrap, []Range{{0, 98}}},
		{"15 without device time", stored(prevCounter(top)), report(counter(0), noTime), wrap, Applied, 15, MarkWrap, nil},
		{"15 not with an older device time", stored(prevCounter(top)), report(counter(0), at(-time.Second)), wrap, Late, 18, 0, nil},
		{"15 distance too large: a reboot", stored(prevCounter(top)), report(counter(100)), wrap, Applied, 16, MarkReboot, nil},
		{"15 far from the top: a reboot", stored(prevCounter(1000)), report(counter(0)), wrap, Applied, 16, MarkReboot, nil},
		{"15 not without a modulus", stored(prevCounter(top)), report(counter(0)), StreamPolicy{}, Applied, 16, MarkReboot, nil},

		{"16 newer time, counter within the reset window", stored(prevCounter(5000)), report(counter(100)), StreamPolicy{}, Applied, 16, MarkReboot, nil},
		{"16 newer time, counter just above it", stored(prevCounter(5000)), report(counter(101)), StreamPolicy{}, Late, 18, 0, nil},
		{"16 newer time, counter above it, silent long enough", stored(prevCounter(5000)), report(counter(101), at(quiet), arrives(quiet)), StreamPolicy{}, Applied, 16, MarkReboot, nil},
		{"16 newer time, counter above it, silent exactly reset_quiet", stored(prevCounter(5000)), report(counter(101), at(quiet-1), arrives(quiet-1)), StreamPolicy{}, Late, 18, 0, nil},
		{"16 a window of its own", stored(prevCounter(5000)), report(counter(8)), StreamPolicy{ResetWindow: 7}, Late, 18, 0, nil},

		{"17 no time, silent", stored(), report(counter(99), noTime, arrives(quiet)), StreamPolicy{}, Applied, 17, MarkReboot, nil},
		{"17 suspect time, silent", stored(), report(counter(99), at(time.Hour), arrives(quiet)), StreamPolicy{}, Applied, 17, MarkClockSuspect | MarkReboot, nil},
		{"17 stored time unknown, silent", stored(prevNoTime), report(counter(99), arrives(quiet)), StreamPolicy{}, Applied, 17, MarkReboot, nil},
		{"17 no time, not silent", stored(), report(counter(99), noTime, arrives(quiet-1)), StreamPolicy{}, Late, 18, 0, nil},
		{"17 not with a known older time, however silent", stored(), report(counter(99), at(-time.Second), arrives(24*time.Hour)), StreamPolicy{}, Late, 18, 0, nil},

		{"18 an old copy", stored(), report(counter(99), at(-time.Second)), StreamPolicy{}, Late, 18, 0, nil},
		{"18 an old copy at the stored time", stored(), report(counter(99), at(0)), StreamPolicy{}, Late, 18, 0, nil},
		{"18 an old copy without time", stored(), report(counter(99), noTime), StreamPolicy{}, Late, 18, 0, nil},
	})
}
