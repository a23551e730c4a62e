package oracle

import (
	"fmt"
	"time"
)

// checkEffects holds what the consumer handled against the first deliveries.
func (c *checker) checkEffects(stream int) {
	if c.Consumer.Effects == nil {
		return
	}
	applied := map[place]bool{}
	var last place
	for i, e := range c.effects[stream] {
		at := place{e.Epoch, e.Sequence}
		event := Event{Stream: stream, Report: e.Report, Epoch: e.Epoch, Sequence: e.Sequence}
		switch {
		case applied[at]:
			c.result.event(DoubleEffect, event, "handled twice")
		case i > 0 && at.before(last):
			c.result.event(DoubleEffect, event, "handled after %d/%d", last.epoch, last.sequence)
		}
		applied[at] = true
		last = at
	}
	if c.Consumer.Counts != nil {
		c.checkCount(stream, int64(len(applied)))
	}
	var highest place
	for i, rec := range c.records[stream] {
		if first := i == 0 || highest.before(rec.at()); !first {
			continue
		}
		highest = rec.at()
		if !applied[highest] {
			c.result.event(Lost, rec.Event, "on the topic at partition %d offset %d, but never handled by the consumer", rec.Partition, rec.Offset)
		}
		delete(applied, highest)
	}
	for at := range applied {
		c.result.event(Phantom, Event{Stream: stream, Epoch: at.epoch, Sequence: at.sequence}, "handled, but not on the topic as a first delivery in order")
	}
}

// checkCount holds the number of effects in the consumer's store against the events it handled.
func (c *checker) checkCount(stream int, handled int64) {
	s := c.Ledger.Streams[stream]
	offender := Offender{Device: s.Device, Stream: s.Name, Detail: fmt.Sprintf("%d effects in the store for %d events", c.Consumer.Counts[stream], handled)}
	switch n := c.Consumer.Counts[stream]; {
	case n > handled:
		c.result.add(DoubleEffect, n-handled, offender)
	case n < handled:
		c.result.add(Lost, handled-n, offender)
	}
}

// checkEnds asks whether all places end with the same event of a stream, and the last that its device was promised.
func (c *checker) checkEnds(stream int) {
	var row Event
	if n := len(c.rows[stream]); n > 0 {
		row = c.rows[stream][n-1].Event
	}
	row.Stream = stream
	c.checkStateRow(stream, row)
	if got := highest(c.records[stream]); got != row.at() && !c.dead[stream][row.at()] {
		c.result.event(FinalState, row, "the topic ends at %d/%d", got.epoch, got.sequence)
	}
	if n := len(c.effects[stream]); n > 0 {
		if e := c.effects[stream][n-1]; (place{e.Epoch, e.Sequence}) != row.at() {
			c.result.event(FinalState, row, "the consumer ends at %d/%d", e.Epoch, e.Sequence)
		}
	}
	if c.Consumer.Positions != nil && len(c.rows[stream]) > 0 {
		if p := c.Consumer.Positions[stream]; (place{p.Epoch, p.Sequence}) != row.at() {
			c.result.event(FinalState, row, "the consumer's store remembers %d/%d", p.Epoch, p.Sequence)
		}
	}
}

func (c *checker) checkStateRow(stream int, row Event) {
	s, ok := c.Database.States[stream]
	switch {
	case !ok && row.Sequence == 0:
	case !ok:
		c.result.event(FinalState, row, "there is no state row")
	case s.Epoch != row.Epoch || s.Sequence != row.Sequence || s.Report != row.Report:
		c.result.event(FinalState, row, "the state row stands at report %d, sequence %d/%d", s.Report, s.Epoch, s.Sequence)
	case !s.Intact:
		c.result.event(FinalState, row, "the state row holds another state")
	}
}

func highest(records []Record) place {
	var top place
	for _, r := range records {
		if top.before(r.at()) {
			top = r.at()
		}
	}
	return top
}

// checkScreen holds what the monitor shows against the state row.
func (c *checker) checkScreen(stream int) {
	if c.Screen == nil {
		return
	}
	s, ok := c.Database.States[stream]
	shown, on := c.Screen[keyOf(c.Ledger, stream)]
	switch {
	case !ok && !on:
	case !on:
		c.result.report(StaleScreen, stream, s.Report, "not on the screen")
	case shown.Epoch != s.Epoch || shown.Sequence != s.Sequence:
		c.result.report(StaleScreen, stream, s.Report, "shown at %d/%d, stored at %d/%d", shown.Epoch, shown.Sequence, s.Epoch, s.Sequence)
	case shown.ReceivedAt.Sub(s.ReceivedAt).Abs() >= time.Millisecond: // a screen need not be finer
		c.result.report(StaleScreen, stream, s.Report, "shown as received at %s, stored %s", shown.ReceivedAt, s.ReceivedAt)
	}
}

// redelivered is how many classified messages may be copies that the broker sent again after ingest gave up a connection:
// what is above published, at most the duplicates.
func (c *checker) redelivered(published int64) int64 {
	if c.Counted == nil || c.Counted.Abandoned == 0 {
		return 0
	}
	return min(c.Database.Classes.Duplicate, max(0, c.Database.Classes.Total()-published))
}

// checkBalance adds up the class columns (N4): each against what it must equal.
func (c *checker) checkBalance() {
	var events int64
	for _, r := range c.Database.Outbox {
		if !r.Restated {
			events++
		}
	}
	got := c.Database.Classes
	c.balance("applied, against rows in the outbox", got.Applied, events)
	c.balance("late, against the streams' totals", got.Late, c.Database.Late)
	c.balance("duplicate, against the streams' totals", got.Duplicate, c.Database.Duplicate)
	c.balance("quarantined, against ingest_reject and its overflow", got.Quarantined, c.Database.Rejected+c.Database.Overflow)
	if n := c.Counted; n != nil {
		c.balance("all classes and abandoned, against received", got.Total()+n.Abandoned, n.Received)
	}
	published, acknowledged := c.Ledger.Totals()
	if c.Undisturbed && c.Resent == 0 {
		c.balance("all classes but redelivered copies, against reports published", got.Total()-c.redelivered(published), published)
	}
	if !c.BrokerHurt && got.Total() < acknowledged {
		c.balance("all classes, at least reports acknowledged", got.Total(), acknowledged)
	}
}

func (c *checker) balance(what string, got, want int64) {
	if got == want {
		return
	}
	n := max(got-want, want-got)
	c.result.add(Unbalanced, n, Offender{Detail: fmt.Sprintf("%s: %d, want %d", what, got, want)})
}

// checkRest asks whether everything has come to rest and nothing died.
func (c *checker) checkRest() {
	if c.Database.Pending > 0 {
		c.result.add(Unfinished, c.Database.Pending, Offender{Detail: "rows above their bucket's cursor"})
	}
	for bucket, why := range c.Database.Halted {
		c.result.add(Unfinished, 1, Offender{Detail: fmt.Sprintf("bucket %d is halted: %s", bucket, why)})
	}
	for _, d := range c.Database.Dead {
		c.result.event(DeadLetter, d.Event, "position %d of bucket %d", d.Position, d.Bucket)
	}
}
