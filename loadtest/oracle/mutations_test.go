package oracle

import (
	"slices"
	"time"

	"github.com/hubstate/hubstate/loadtest/ledger"
)

type mutation struct {
	want   Fault
	change func(h *History)
}

// mutations are the ways in which a pipeline can be wrong, each with the fault that must be named.
func mutations() map[string]mutation {
	all := map[string]mutation{
		"an acknowledged report became no event": {Lost, func(h *History) {
			h.forgetReport(1, 3)
			h.Database.Gaps[1] = []Range{{3, 3}, {5, 7}} // the product noticed, and it is lost all the same
			h.Undisturbed = false
		}},
		"the last report of a stream became no event": {Lost, func(h *History) {
			h.forgetReport(0, 13)
			st := h.Database.States[0]
			st.Report = 12
			h.Database.States[0] = st
		}},
		"ingest acknowledged before its transaction": {AckTooEarly, func(h *History) {
			h.BrokerHurt, h.Undisturbed = true, false
			h.forgetReport(1, 3)
			h.Database.Gaps[1] = []Range{{3, 3}, {5, 7}}
			h.AckedByIngest = map[Ref]bool{{1, 3}: true}
		}},
		"a conflict is not in quarantine": {Lost, func(h *History) {
			delete(h.Database.Rejects, Ref{0, 8})
		}},
		"poison is not in quarantine": {Lost, func(h *History) {
			delete(h.Database.Rejects, Ref{2, 9})
		}},
		"a resend is not counted": {Lost, func(h *History) {
			st := h.Database.States[1]
			st.Duplicate--
			h.Database.States[1] = st
		}},
		"a row never reached the topic": {Lost, func(h *History) { h.dropRecords(1, 4, 4) }},
		"the last row never reached the topic": {Lost, func(h *History) {
			h.dropRecords(1, 9, 9)
		}},
		"the consumer missed a record": {Lost, func(h *History) {
			h.Consumer.Effects = slices.Delete(h.Consumer.Effects, 2, 3)
		}},
		"a gap is not recorded":      {GapsWrong, func(h *History) { h.Database.Gaps[1] = nil }},
		"a gap is recorded twice":    {GapsWrong, func(h *History) { h.Database.Gaps[1] = []Range{{5, 7}, {5, 7}} }},
		"a gap is recorded too wide": {GapsWrong, func(h *History) { h.Database.Gaps[1] = []Range{{5, 8}} }},
		"lost by a hurt broker, gap not recorded": {GapsWrong, func(h *History) {
			h.BrokerHurt, h.Undisturbed = true, false
			h.forgetReport(1, 3)
		}},
		"two records changed places": {Reordered, func(h *History) {
			h.Topic[2], h.Topic[3] = h.Topic[3], h.Topic[2]
		}},
		"a record came after its successors": {Reordered, func(h *History) {
			moved := h.Topic[1]
			h.Topic = append(slices.Delete(h.Topic, 1, 2), moved)
		}},
		"one report became two events": {DoubleEvent, func(h *History) {
			h.Database.Outbox[3].Report = h.Database.Outbox[2].Report
		}},
		"an older report was applied after a newer": {DoubleEvent, func(h *History) {
			o := h.Database.Outbox
			o[2].Report, o[3].Report = o[3].Report, o[2].Report
		}},
		"a conflict was applied": {DoubleEvent, func(h *History) { h.Database.Outbox[5].Report = 8 }},
		"the consumer handled an event twice": {DoubleEffect, func(h *History) {
			h.Consumer.Effects = slices.Insert(h.Consumer.Effects, 3, h.Consumer.Effects[2])
		}},
		"the consumer went back": {DoubleEffect, func(h *History) {
			e := h.Consumer.Effects
			e[2], e[3] = e[3], e[2]
		}},
		"an effect was made twice inside the store": {DoubleEffect, func(h *History) { h.Consumer.Counts[0]++ }},
		"an effect was not made inside the store":   {Lost, func(h *History) { h.Consumer.Counts[0]-- }},
		"the database skipped a sequence":           {NotDense, func(h *History) { shift(h, 1, 4, 1) }},
		"the database repeated a sequence":          {NotDense, func(h *History) { h.Database.Outbox[4].Sequence-- }},
		"a stream does not begin at one":            {NotDense, func(h *History) { shift(h, 2, 0, 3) }},
		"a hole without ce_skipped":                 {Hole, func(h *History) { h.dropRecords(0, 3, 4) }},
		"a hole that ce_skipped explains in part": {Hole, func(h *History) {
			h.dropRecords(0, 3, 4)
			h.Topic[2].Skipped = []Range{{4, 4}}
		}},
		"the first record of a stream is missing": {Hole, func(h *History) { h.dropRecords(0, 1, 1) }},
		"the state row stands at an older report": {FinalState, func(h *History) {
			st := h.Database.States[0]
			st.Report--
			h.Database.States[0] = st
		}},
		"the state row holds another state": {FinalState, func(h *History) {
			st := h.Database.States[0]
			st.Intact = false
			h.Database.States[0] = st
		}},
		"the state row is gone": {FinalState, func(h *History) { delete(h.Database.States, 0) }},
		"the store remembers an older position": {FinalState, func(h *History) {
			h.Consumer.Positions[1] = PositionSeen{1, 3}
		}},
		"the store forgot a stream":     {FinalState, func(h *History) { delete(h.Consumer.Positions, 1) }},
		"a stored state was changed":    {Corrupt, func(h *History) { h.Database.Outbox[4].Intact = false }},
		"a record differs from its row": {Corrupt, func(h *History) { h.Topic[4].Hash++ }},
		"a record the database does not know": {Phantom, func(h *History) {
			r := h.Topic[8]
			r.Sequence = 10
			h.Topic = append(h.Topic, r)
		}},
		"the topic has another message at a sequence": {Phantom, func(h *History) { h.Topic[4].ID[15]++ }},
		"a report that no device sent":                {Phantom, func(h *History) { h.Database.Outbox[4].Report = 999 }},
		"the consumer handled what is not on the topic": {Phantom, func(h *History) {
			h.Consumer.Effects = append(h.Consumer.Effects, Effect{Stream: 0, Report: 1, Epoch: 1, Sequence: 77})
		}},
		"a class counts one too many": {Unbalanced, func(h *History) { h.Database.Classes.Applied++ }},
		"duplicates do not add up":    {Unbalanced, func(h *History) { h.Database.Classes.Duplicate-- }},
		"late do not add up":          {Unbalanced, func(h *History) { h.Database.Classes.Late++ }},
		"quarantine does not add up":  {Unbalanced, func(h *History) { h.Database.Rejected-- }},
		"ingest received more than it accounts for": {Unbalanced, func(h *History) {
			h.Counted = &Counted{Received: h.Database.Classes.Total() + 5, Abandoned: 4}
		}},
		"delivered twice in calm": {Unbalanced, func(h *History) {
			st := h.Database.States[0]
			st.Duplicate++
			h.Database.States[0] = st
			h.Database.Duplicate++
			h.Database.Classes.Duplicate++
		}},
		"a wrong key":                {Misfiled, func(h *History) { h.Topic[5].Misfiled = true }},
		"a stream in two partitions": {Misfiled, func(h *History) { h.Topic[5].Partition = 9 }},
		"a dead row": {DeadLetter, func(h *History) {
			h.Database.Dead = []Row{h.Database.Outbox[3]}
			h.dropRecords(0, 4, 4)
			h.Topic[3].Skipped = []Range{{4, 4}}
		}},
		"rows still wait":    {Unfinished, func(h *History) { h.Database.Pending = 3 }},
		"a bucket is halted": {Unfinished, func(h *History) { h.Database.Halted = map[int16]string{4: "tail"} }},
		"the screen shows an older event": {StaleScreen, func(h *History) {
			h.Screen = screenOf(h)
			shown := h.Screen[keyOf(h.Ledger, 1)]
			shown.Sequence--
			h.Screen[keyOf(h.Ledger, 1)] = shown
		}},
		"the screen makes a device younger": {StaleScreen, func(h *History) {
			h.Screen = screenOf(h)
			shown := h.Screen[keyOf(h.Ledger, 1)]
			shown.ReceivedAt = shown.ReceivedAt.Add(time.Second)
			h.Screen[keyOf(h.Ledger, 1)] = shown
		}},
		"the screen misses a device": {StaleScreen, func(h *History) { h.Screen = map[ledger.Key]Shown{} }},
	}
	return all
}

// shift raises the sequences of a stream from its n-th event on, everywhere.
func shift(h *History, stream, from int, by int64) {
	after := int64(from)
	for i := range h.Database.Outbox {
		if r := &h.Database.Outbox[i]; r.Stream == stream && r.Sequence > after {
			r.Sequence += by
		}
	}
	for i := range h.Topic {
		if r := &h.Topic[i]; r.Stream == stream && r.Sequence > after {
			r.Sequence += by
		}
	}
}
