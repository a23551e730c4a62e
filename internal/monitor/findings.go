package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Severity orders findings.
type Severity string

// The severities.
const (
	Bad  Severity = "bad"  // somebody should act now
	Warn Severity = "warn" // somebody should look
)

// Finding is one answer to: is anything wrong, where, since when?
type Finding struct {
	Severity Severity  `json:"severity"`
	Question string    `json:"question"` // pipeline, device or clock: which of the three it answers
	Hub      string    `json:"hub,omitempty"`
	Device   string    `json:"device,omitempty"`
	Text     string    `json:"text"`
	Since    time.Time `json:"since,omitzero"`
}

// The questions of a finding.
const (
	questionPipeline = "pipeline"
	questionDevice   = "device"
	questionClock    = "clock"
)

// lateAfter is the age from which rows in the outbox or an old screen are worth a word.
const lateAfter = 2 * time.Second

// Findings lists what is wrong with o, worst first. It is pure; an empty list means that nothing is wrong and that the
// screen has seen far enough to say so.
func Findings(o *Overview) []Finding {
	list := pipelineFindings(o)
	for i := range o.Hubs {
		list = append(list, hubFindings(&o.Hubs[i])...)
	}
	slices.SortStableFunc(list, func(a, b Finding) int { return rank(a.Severity) - rank(b.Severity) })
	return list
}

func rank(s Severity) int {
	if s == Bad {
		return 0
	}
	return 1
}

func pipelineFindings(o *Overview) []Finding {
	var list []Finding
	add := func(s Severity, since time.Time, format string, args ...any) {
		list = append(list, Finding{Severity: s, Question: questionPipeline, Since: since, Text: fmt.Sprintf(format, args...)})
	}
	p := &o.Pipeline
	if !p.View.OK {
		add(Bad, p.View.Since, "the view's store does not answer or take events: %s", p.View.Reason)
	}
	if !p.Kafka.OK {
		add(Bad, p.Kafka.Since, "Kafka does not answer: %s", p.Kafka.Reason)
	}
	if !p.Consumer.OK {
		add(Bad, p.Consumer.Since, "this monitor does not read the topic: %s", p.Consumer.Reason)
	}
	if p.View.OK && p.Kafka.OK && o.AsOf.IsZero() {
		add(Bad, time.Time{}, "the view is being built: %s to read", plural(p.Lag, "record"))
	}
	if p.Outbox != nil {
		list = append(list, outboxFindings(p.Outbox)...)
	}
	if !o.AsOf.IsZero() && o.Now.Sub(o.AsOf) > lateAfter && len(list) == 0 {
		add(Warn, o.AsOf, "this screen is %s old: %s between Kafka and it", short(o.Now.Sub(o.AsOf)), plural(p.Lag, "record"))
	}
	return list
}

func outboxFindings(b *Outbox) []Finding {
	var list []Finding
	add := func(s Severity, since time.Time, format string, args ...any) {
		list = append(list, Finding{Severity: s, Question: questionPipeline, Since: since, Text: fmt.Sprintf(format, args...)})
	}
	if !b.OK {
		add(Bad, b.Since, "the database does not answer: %s", b.Reason)
		return list
	}
	oldest := time.Duration(b.OldestMs) * time.Millisecond
	switch {
	case b.Relays == 0 && b.Buckets > 0:
		add(Bad, b.oldestUnpublished(), "no relay is running; %s", waiting(b))
	case b.Outage > 0 && oldest > lateAfter:
		add(Bad, b.oldestUnpublished(), "the relay cannot publish (%s, %d of %d buckets); %s", orUnknown(b.ErrorCode), b.Outage, b.Buckets, waiting(b))
	case oldest > lateAfter:
		add(Warn, b.oldestUnpublished(), "the relay is late; %s", waiting(b))
	}
	if b.Halted > 0 {
		add(Bad, time.Time{}, "%s halted, waiting for `relay rebase`", plural(b.Halted, "bucket"))
	}
	if b.LanesAlive < b.Lanes {
		add(Bad, time.Time{}, "nobody reads from the broker for %s", b.LanesDown)
	}
	if b.Dead > 0 {
		add(Warn, b.AskedAt.Add(-time.Duration(b.DeadOldestMs)*time.Millisecond), "%s waiting for a decision%s", plural(b.Dead, "dead letter"), held(b.Held))
	}
	return list
}

func hubFindings(h *Hub) []Finding {
	var list []Finding
	add := func(s Severity, question string, since time.Time, format string, args ...any) {
		list = append(list, Finding{Severity: s, Question: question, Hub: h.ID, Since: since, Text: fmt.Sprintf(format, args...)})
	}
	c := &h.Counts
	if h.Totals.Lost > 0 {
		add(Bad, questionPipeline, time.Time{}, "%s lost inside the pipeline", were(h.Totals.Lost, "event"))
	}
	switch silent := c.Silent + c.ConnectedSilent; {
	case silent == 0:
	case !h.SilentSince.IsZero():
		add(Bad, questionDevice, h.SilentSince, "the hub is silent: %d of %d devices%s", silent, c.Devices, connected(c.ConnectedSilent))
	default:
		add(Warn, questionDevice, h.FirstSilentAt, "%d of %d devices silent%s", silent, c.Devices, connected(c.ConnectedSilent))
	}
	if c.NeverSeen > 0 {
		add(Warn, questionDevice, time.Time{}, "%s known but never heard", plural(c.NeverSeen, "device"))
	}
	if c.ClockSuspect > 0 {
		add(Warn, questionClock, h.ClockSuspectAt, "%s with an implausible clock", plural(c.ClockSuspect, "device"))
	}
	return list
}

func waiting(b *Outbox) string {
	if b.PendingAtMost {
		return fmt.Sprintf("more than %d rows waiting", b.Pending)
	}
	return plural(b.Pending, "row") + " waiting"
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func were(n int64, noun string) string {
	if n == 1 {
		return plural(n, noun) + " was"
	}
	return plural(n, noun) + " were"
}

func held(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d more are held behind them", n)
}

func connected(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them connected", n)
}

func orUnknown(code string) string {
	if code == "" {
		return "unknown error"
	}
	return strings.ReplaceAll(code, "_", " ")
}

// short rounds a duration for a sentence.
func short(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()
}
