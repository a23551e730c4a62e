package oracle

import (
	"slices"
	"testing"
	"time"

	"github.com/hubstate/hubstate/loadtest/ledger"
)

// correctHistory is a small run in which everything happens that a device can do and nothing goes wrong. It is made
// event by event, with its own idea of sequences and gaps, not by asking the checker.
func correctHistory() *History {
	streams := []*ledger.Stream{
		{Device: "d-000000", Hub: "hub-1", Name: "state"},
		{Device: "d-000001", Hub: "hub-2", Name: "state"},
		{Device: "d-000002", Hub: "hub-1", Name: "state"},
	}
	book := ledger.New("test", 7, time.Unix(1_800_000_000, 0), streams)
	h := &History{Ledger: book, Undisturbed: true}
	h.Database = Database{States: map[int]State{}, Gaps: map[int][]Range{}, Rejects: map[Ref]int{}, Skipped: map[int][]Skip{}}
	h.Consumer.Positions, h.Consumer.Counts = map[int]PositionSeen{}, map[int]int64{}
	for i, s := range streams {
		writeReports(s, i)
		runPipeline(h, i)
	}
	return h
}

// writeReports: counters 1..4, a jump to 8, a resend, a straggler, a conflict, poison, 9, a reboot, 2, 3.
func writeReports(s *ledger.Stream, stream int) {
	boot := int32(1)
	if stream == 2 {
		boot = 0 // sends no boot: a reboot shows in the counter only
	}
	add := func(kind ledger.Kind, counter int64, of uint32) {
		due := int64(len(s.Reports)) * int64(time.Second)
		s.Append(ledger.Report{Kind: kind, Counter: counter, Boot: boot, Of: of, Due: due, Size: 10, Acked: true})
	}
	for counter := range int64(4) {
		add(ledger.Next, counter+1, 0)
	}
	add(ledger.Next, 8, 0)
	add(ledger.Resend, 0, 5)
	add(ledger.Straggler, 0, 3)
	add(ledger.Conflict, 8, 0)
	add(ledger.Poison, 0, 0)
	add(ledger.Next, 9, 0)
	if boot > 0 {
		boot++
	}
	add(ledger.Reboot, 1, 0)
	add(ledger.Next, 2, 0)
	add(ledger.Next, 3, 0)
}

func runPipeline(h *History, stream int) {
	var st State
	db := &h.Database
	for i, r := range h.Ledger.Streams[stream].Reports {
		number := uint32(i + 1)
		switch {
		case r.Kind.Moves():
			st.Sequence++
			e := Event{Stream: stream, Report: number, Epoch: 1, Sequence: st.Sequence, ID: [16]byte{byte(stream), byte(number)}, Hash: uint64(stream*100 + i), Intact: true}
			db.Outbox = append(db.Outbox, Row{Event: e, Position: int64(len(db.Outbox) + 1), Bucket: int16(stream)})
			h.Topic = append(h.Topic, Record{Event: e, Partition: int32(stream), Offset: st.Sequence - 1})
			h.Consumer.Effects = append(h.Consumer.Effects, Effect{Stream: stream, Report: number, Epoch: 1, Sequence: st.Sequence})
			h.Consumer.Counts[stream]++
			st.Report = number
			db.Classes.Applied++
		case r.Kind.Rejected():
			db.Rejects[Ref{stream, number}]++
			db.Rejected++
			db.Classes.Quarantined++
		case r.Kind == ledger.Resend:
			st.Duplicate++
			db.Duplicate++
			db.Classes.Duplicate++
		case r.Kind == ledger.Straggler:
			st.Late++
			db.Late++
			db.Classes.Late++
		}
	}
	st.Epoch, st.Intact, st.ReceivedAt = 1, true, h.Ledger.Start
	db.States[stream] = st
	db.Gaps[stream] = []Range{{5, 7}}
	h.Consumer.Positions[stream] = PositionSeen{1, st.Sequence}
}

func TestCheck_AcceptsACorrectHistory(t *testing.T) {
	t.Parallel()
	h := correctHistory()
	h.Screen = screenOf(h)
	result := Check(h)
	if found := result.Findings(); len(found) > 0 || !result.Correct() {
		t.Fatalf("cries wolf: %+v", found)
	}
}

func screenOf(h *History) map[ledger.Key]Shown {
	screen := map[ledger.Key]Shown{}
	for i, s := range h.Database.States {
		screen[keyOf(h.Ledger, i)] = Shown{Epoch: s.Epoch, Sequence: s.Sequence, ReceivedAt: s.ReceivedAt}
	}
	return screen
}

// TestCheck_AcceptsWhatIsAllowed: a duplicate on the topic, a range skipped on purpose, a report lost by a hurt broker
// with its gap recorded, a redelivery after a crash.
func TestCheck_AcceptsWhatIsAllowed(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(h *History)
		want   Fault // counted, but not condemned; "" for none
	}{
		"a record repeated": {func(h *History) { h.Topic = append(h.Topic, h.Topic[1]) }, TopicDuplicate},
		"superseded rows": {func(h *History) {
			h.dropRecords(0, 3, 4)
			h.Topic[2].Skipped = []Range{{3, 4}} // what was sequence 5 now says so
		}, ""},
		"skipped, and no event after it yet": {func(h *History) {
			h.dropRecords(2, 8, 9)
			h.Database.Skipped[2] = []Skip{{1, Range{8, 9}}}
			h.endConsumerAndTopicAt(2, 7)
		}, FinalState},
		"lost by a hurt broker, gap recorded": {func(h *History) {
			h.BrokerHurt, h.Undisturbed = true, false
			h.forgetReport(1, 3)
			h.Database.Gaps[1] = []Range{{3, 3}, {5, 7}}
		}, LostBeforeUs},
		"a conflict with a report that a hurt broker lost": {func(h *History) {
			h.BrokerHurt, h.Undisturbed = true, false
			h.renameReport(1, 5, 8) // report 5 is lost, 8 has its counter and becomes the event
			delete(h.Database.Rejects, Ref{1, 8})
			h.Database.Rejected--
			h.Database.Classes.Quarantined--
		}, LostBeforeUs},
		"delivered again after a crash": {func(h *History) {
			h.Undisturbed = false
			st := h.Database.States[0]
			st.Late++
			h.Database.States[0] = st
			h.Database.Late++
			h.Database.Classes.Late++
		}, ""},
		"never acknowledged and never arrived": {func(h *History) {
			h.forgetReport(1, 3)
			h.Database.Gaps[1] = []Range{{3, 3}, {5, 7}}
			h.Ledger.Streams[1].Reports[2].Acked = false
			h.Undisturbed = false
		}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := correctHistory()
			tc.change(h)
			result := Check(h)
			if tc.want == FinalState { // a tail that is skipped does end differently, and must be looked at
				if result.Count(Lost) > 0 || result.Count(Hole) > 0 {
					t.Fatalf("skipped rows counted as lost: %+v", result.Findings())
				}
				return
			}
			if !result.Correct() {
				t.Fatalf("condemned: %+v", result.Findings())
			}
			if tc.want != "" && result.Count(tc.want) == 0 {
				t.Fatalf("not counted as %s", tc.want)
			}
		})
	}
}

// TestCheck_CatchesEveryMutation changes a correct history in one way each and wants that fault named.
func TestCheck_CatchesEveryMutation(t *testing.T) {
	t.Parallel()
	for name, m := range mutations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := correctHistory()
			m.change(h)
			result := Check(h)
			if result.Correct() {
				t.Fatalf("blind: %+v", result.Findings())
			}
			if result.Count(m.want) == 0 {
				t.Fatalf("found %+v, want %s", result.Findings(), m.want)
			}
		})
	}
}

// dropRecords takes sequences from..to of a stream off the topic and out of the consumer.
func (h *History) dropRecords(stream int, from, to int64) {
	h.Topic = slices.DeleteFunc(h.Topic, func(r Record) bool { return r.Stream == stream && r.Sequence >= from && r.Sequence <= to })
	before := len(h.Consumer.Effects)
	h.Consumer.Effects = slices.DeleteFunc(h.Consumer.Effects, func(e Effect) bool { return e.Stream == stream && e.Sequence >= from && e.Sequence <= to })
	h.Consumer.Counts[stream] -= int64(before - len(h.Consumer.Effects))
}

func (h *History) endConsumerAndTopicAt(stream int, sequence int64) {
	h.dropRecords(stream, sequence+1, 1<<60)
	h.Consumer.Positions[stream] = PositionSeen{1, sequence}
}

// forgetReport takes a report out of everything, as if it had never arrived, and closes the ranks behind it.
func (h *History) forgetReport(stream int, report uint32) {
	drop := func(e Event) bool { return e.Stream == stream && e.Report == report }
	h.Database.Outbox = slices.DeleteFunc(h.Database.Outbox, func(r Row) bool { return drop(r.Event) })
	h.Topic = slices.DeleteFunc(h.Topic, func(r Record) bool { return drop(r.Event) })
	h.Consumer.Effects = slices.DeleteFunc(h.Consumer.Effects, func(e Effect) bool { return e.Stream == stream && e.Report == report })
	for i := range h.Database.Outbox {
		if r := &h.Database.Outbox[i]; r.Stream == stream && r.Report > report {
			r.Sequence--
		}
	}
	for i := range h.Topic {
		if r := &h.Topic[i]; r.Stream == stream && r.Report > report {
			r.Sequence--
		}
	}
	for i := range h.Consumer.Effects {
		if e := &h.Consumer.Effects[i]; e.Stream == stream && e.Report > report {
			e.Sequence--
		}
	}
	st := h.Database.States[stream]
	st.Sequence--
	h.Database.States[stream] = st
	h.Consumer.Positions[stream] = PositionSeen{1, st.Sequence}
	h.Database.Classes.Applied--
	h.Consumer.Counts[stream]--
}

// TestMutations_CoverEveryFault guards the list: a fault that no mutation provokes may be blind.
func TestMutations_CoverEveryFault(t *testing.T) {
	t.Parallel()
	covered := map[Fault]bool{}
	for _, m := range mutations() {
		covered[m.want] = true
	}
	for _, f := range faults() {
		if !f.allowed() && !covered[f] {
			t.Errorf("no mutation provokes %s", f)
		}
	}
}

// renameReport makes an event say that it came from another report.
func (h *History) renameReport(stream int, from, to uint32) {
	for i := range h.Database.Outbox {
		if r := &h.Database.Outbox[i]; r.Stream == stream && r.Report == from {
			r.Report = to
		}
	}
	for i := range h.Topic {
		if r := &h.Topic[i]; r.Stream == stream && r.Report == from {
			r.Report = to
		}
	}
	for i := range h.Consumer.Effects {
		if e := &h.Consumer.Effects[i]; e.Stream == stream && e.Report == from {
			e.Report = to
		}
	}
}
