package oracle

import (
	"slices"

	"github.com/hubstate/hubstate/loadtest/ledger"
)

// Check compares all that is known of a run. It is pure; h is not changed.
func Check(h *History) *Result {
	c := &checker{History: h, result: &Result{findings: map[Fault]*Finding{}, book: h.Ledger}}
	c.byStream()
	for stream := range h.Ledger.Streams {
		c.checkEvents(stream)
		c.checkAccounted(stream)
		c.checkGaps(stream)
		c.checkTopic(stream)
		c.checkEffects(stream)
		c.checkEnds(stream)
		c.checkScreen(stream)
	}
	c.checkBalance()
	c.checkRest()
	return c.result
}

type checker struct {
	*History
	result  *Result
	rows    [][]Row    // of each stream, by position
	records [][]Record // of each stream, in partition and offset order
	effects [][]Effect
	dead    map[int]map[place]bool
}

// byStream deals everything out to its stream.
func (c *checker) byStream() {
	n := len(c.Ledger.Streams)
	c.rows, c.records, c.effects = make([][]Row, n), make([][]Record, n), make([][]Effect, n)
	for _, r := range c.Database.Outbox {
		c.rows[r.Stream] = append(c.rows[r.Stream], r)
	}
	for _, r := range c.Topic {
		c.records[r.Stream] = append(c.records[r.Stream], r)
	}
	for _, e := range c.Consumer.Effects {
		c.effects[e.Stream] = append(c.effects[e.Stream], e)
	}
	c.dead = map[int]map[place]bool{}
	for _, d := range c.Database.Dead {
		if c.dead[d.Stream] == nil {
			c.dead[d.Stream] = map[place]bool{}
		}
		c.dead[d.Stream][d.at()] = true
	}
}

// checkEvents looks at the outbox rows of a stream alone: dense, in the device's order, each report once, unchanged.
func (c *checker) checkEvents(stream int) {
	var last place
	var report uint32
	for i, row := range c.rows[stream] {
		if i > 0 && !follows(last, row.at()) {
			c.result.event(NotDense, row.Event, "follows %d/%d at position %d", last.epoch, last.sequence, row.Position)
		}
		if i == 0 && row.Sequence != 1 {
			c.result.event(NotDense, row.Event, "is the first at position %d", row.Position)
		}
		c.checkReport(row, report)
		last, report = row.at(), max(report, row.Report)
	}
}

// follows reports whether q comes right after p: the next sequence, or a higher epoch.
func follows(p, q place) bool {
	return q.epoch == p.epoch && q.sequence == p.sequence+1 || q.epoch > p.epoch
}

// checkReport holds the report behind a row against the ledger; before is the highest number of the stream so far.
func (c *checker) checkReport(row Row, before uint32) {
	r, known := c.Ledger.Streams[row.Stream].Report(row.Report)
	switch {
	case !known:
		c.result.event(Phantom, row.Event, "no device sent this report; position %d", row.Position)
	case row.Restated:
	case row.Report == before:
		c.result.event(DoubleEvent, row.Event, "the report is an event already; position %d", row.Position)
	case row.Report < before:
		c.result.event(DoubleEvent, row.Event, "report %d was applied before this older one; position %d", before, row.Position)
	case r.Kind == ledger.Conflict && c.BrokerHurt && !c.hasRow(row.Stream, row.Report, row.Position):
		// The broker lost the report that this one contradicts, so there was nothing to contradict.
	case !r.Kind.Moves():
		c.result.event(DoubleEvent, row.Event, "a %s report became an event; position %d", r.Kind, row.Position)
	}
	if known && !row.Intact {
		c.result.event(Corrupt, row.Event, "the stored state is not what the device sent; position %d", row.Position)
	}
}

// hasRow reports whether a row of the same boot below position carries the counter of report.
func (c *checker) hasRow(stream int, report uint32, position int64) bool {
	reports := c.Ledger.Streams[stream].Reports
	boot := boots(reports)
	for _, row := range c.rows[stream] {
		if row.Position < position && row.Report > 0 && int(row.Report) <= len(reports) &&
			boot[row.Report-1] == boot[report-1] && reports[row.Report-1].Counter == reports[report-1].Counter {
			return true
		}
	}
	return false
}

// checkAccounted asks of each acknowledged report where it is.
func (c *checker) checkAccounted(stream int) {
	var said int64 // acknowledged reports that say nothing new
	applied := map[uint32]bool{}
	for _, row := range c.rows[stream] {
		applied[row.Report] = true
	}
	for i := range c.Ledger.Streams[stream].Reports {
		r := &c.Ledger.Streams[stream].Reports[i]
		number := uint32(i + 1)
		switch {
		case !r.Acked:
		case r.Kind.Moves():
			c.accountApplied(stream, number, r, applied[number])
		case r.Kind.Rejected():
			c.accountRejected(stream, number, r, applied[number])
		default:
			said++
		}
	}
	c.accountRepeated(stream, said)
}

func (c *checker) accountApplied(stream int, number uint32, r *ledger.Report, applied bool) {
	switch {
	case applied:
	case c.AckedByIngest[Ref{stream, number}]:
		c.result.report(AckTooEarly, stream, number, "counter %d: ingest acknowledged it to the broker; no transaction has it", r.Counter)
		c.result.report(Lost, stream, number, "counter %d: acknowledged by ingest, in no transaction", r.Counter)
	case c.BrokerHurt:
		c.result.report(LostBeforeUs, stream, number, "counter %d: acknowledged by a broker that was hurt", r.Counter)
	default:
		s := c.Database.States[stream]
		c.result.report(Lost, stream, number, "counter %d boot %d: acknowledged, but no event; the state row stands at report %d, sequence %d",
			r.Counter, r.Boot, s.Report, s.Sequence)
	}
}

func (c *checker) accountRejected(stream int, number uint32, r *ledger.Report, applied bool) {
	switch {
	case c.Database.Rejects[Ref{stream, number}] > 0, c.Database.Overflow > 0:
		// Beyond the cap rejects are only counted; checkBalance holds the sum.
	case applied && c.BrokerHurt:
		// checkReport has seen to it.
	case c.BrokerHurt:
		c.result.report(LostBeforeUs, stream, number, "a %s report, acknowledged by a broker that was hurt", r.Kind)
	default:
		c.result.report(Lost, stream, number, "a %s report, acknowledged, but not in quarantine", r.Kind)
	}
}

// accountRepeated holds resends and stragglers against the stream's counts: which of the two a copy is depends on what
// else was delivered again, but it must be one of them.
func (c *checker) accountRepeated(stream int, said int64) {
	s := c.Database.States[stream]
	if counted := s.Duplicate + s.Late; counted < said && !c.BrokerHurt {
		c.result.add(Lost, said-counted, Offender{
			Device: c.Ledger.Streams[stream].Device, Stream: c.Ledger.Streams[stream].Name,
			Detail: "acknowledged repetitions that are counted neither as duplicate nor as late",
		})
	}
}

// checkGaps holds the recorded gaps against the counters that really are missing between applied reports of one boot.
func (c *checker) checkGaps(stream int) {
	want := c.missing(stream)
	got := slices.Clone(c.Database.Gaps[stream])
	byStart := func(a, b Range) int { return int(a.From - b.From) }
	slices.SortStableFunc(want, byStart)
	slices.SortStableFunc(got, byStart)
	if !slices.Equal(want, got) {
		c.result.report(GapsWrong, stream, 0, "recorded %v, but missing are %v", clip(got), clip(want))
	}
}

func clip(rs []Range) []Range { return rs[:min(len(rs), 8)] }

func (c *checker) missing(stream int) []Range {
	boots := boots(c.Ledger.Streams[stream].Reports)
	var gaps []Range
	var last *ledger.Report
	var lastBoot int
	for _, row := range c.rows[stream] {
		r, known := c.Ledger.Streams[stream].Report(row.Report)
		if !known || row.Restated {
			continue
		}
		boot := boots[row.Report-1]
		// A device without boots that rebooted while the broker lost reports cannot be told from one that went on.
		if last != nil && (boot == lastBoot || r.Boot == 0) && r.Counter > last.Counter+1 {
			gaps = append(gaps, Range{last.Counter + 1, r.Counter - 1})
		}
		last, lastBoot = &r, boot
	}
	return gaps
}

// boots numbers the boots of a device by its own deeds, also when it sends no boot.
func boots(reports []ledger.Report) []int {
	all := make([]int, len(reports))
	boot := 1
	for i, r := range reports {
		if r.Kind == ledger.Reboot {
			boot++
		}
		all[i] = boot
	}
	return all
}
