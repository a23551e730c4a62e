package oracle

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/hubstate/hubstate/loadtest/ledger"
)

// Fault names one way in which a run can be wrong.
type Fault string

// The faults. LostBeforeUs and TopicDuplicate are counted but do not condemn a run by themselves: the first is allowed
// after the broker was hurt (when it was not, the report is Lost), the second is what "at least once" means.
const (
	Lost           Fault = "lost"            // acknowledged to the device, nowhere accounted for
	LostBeforeUs   Fault = "lost_before_us"  // acknowledged by a broker that then lost it
	GapsWrong      Fault = "gaps_wrong"      // the recorded gaps are not exactly the counters that never arrived
	Reordered      Fault = "reordered"       // a first delivery after a later one of its stream
	TopicDuplicate Fault = "topic_duplicate" // delivered to the topic more than once
	DoubleEvent    Fault = "double_event"    // one report became two events
	DoubleEffect   Fault = "double_effect"   // a consumer handled an event twice, or went back
	NotDense       Fault = "not_dense"       // the database skipped or repeated a sequence
	Hole           Fault = "hole"            // missing on the topic without an explanation
	FinalState     Fault = "final_state"     // database, topic and consumer do not end with the same event
	Corrupt        Fault = "corrupt"         // an event is not, byte for byte, what was reported or stored
	Phantom        Fault = "phantom"         // on the topic or applied, but unknown to the database
	Unbalanced     Fault = "unbalanced"      // the classes do not add up
	AckTooEarly    Fault = "ack_too_early"   // ingest acknowledged a report whose transaction is not there
	Misfiled       Fault = "misfiled"        // wrong key, contradicting headers, or a stream in two partitions
	DeadLetter     Fault = "dead_letter"     // dead or held rows nobody expected
	Unfinished     Fault = "unfinished"      // rows still waiting, or buckets halted, when all should be at rest
	StaleScreen    Fault = "stale_screen"    // the monitor shows another event or another age
)

// faults lists all faults in the order they are printed.
func faults() []Fault {
	return []Fault{
		Lost, LostBeforeUs, GapsWrong, Reordered, TopicDuplicate, DoubleEvent, DoubleEffect, NotDense, Hole,
		FinalState, Corrupt, Phantom, Unbalanced, AckTooEarly, Misfiled, DeadLetter, Unfinished, StaleScreen,
	}
}

// allowed reports whether f does not condemn a run.
func (f Fault) allowed() bool { return f == LostBeforeUs || f == TopicDuplicate }

// maxOffenders is how many of each fault are kept with their details.
const maxOffenders = 10

// Offender is one case of a fault, with what is needed to look at it.
type Offender struct {
	Device   string `json:"device,omitempty"`
	Stream   string `json:"stream,omitempty"`
	Report   uint32 `json:"report,omitempty"`
	Epoch    int64  `json:"epoch,omitempty"`
	Sequence int64  `json:"sequence,omitempty"`
	Detail   string `json:"detail"`
}

// Finding is a fault, how often it occurred, and its first cases.
type Finding struct {
	Fault     Fault      `json:"fault"`
	Count     int64      `json:"count"`
	Offenders []Offender `json:"offenders,omitempty"`
}

// Result is the answer of Check.
type Result struct {
	findings map[Fault]*Finding
	book     *ledger.Ledger
}

// Count is how often f occurred.
func (r *Result) Count(f Fault) int64 {
	if found := r.findings[f]; found != nil {
		return found.Count
	}
	return 0
}

// Findings lists the faults that occurred.
func (r *Result) Findings() []Finding {
	var all []Finding
	for _, f := range faults() {
		if found := r.findings[f]; found != nil && found.Count > 0 {
			all = append(all, *found)
		}
	}
	return all
}

// Correct reports whether nothing occurred that condemns the run.
func (r *Result) Correct() bool { return r.CorrectExcept("") }

// CorrectExcept is Correct, with one fault more allowed: the run provoked it.
func (r *Result) CorrectExcept(provoked Fault) bool {
	for f, found := range r.findings {
		if found.Count > 0 && !f.allowed() && f != provoked {
			return false
		}
	}
	return true
}

// Print writes the verdict for people.
func (r *Result) Print(w io.Writer) {
	verdict := "correct: nothing lost, nothing reordered"
	if !r.Correct() {
		verdict = "WRONG"
	}
	fmt.Fprintf(w, "verdict: %s\n", verdict)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	defer func() { _ = tw.Flush() }() // a report that cannot be written has no other place to say so
	for _, f := range r.Findings() {
		fmt.Fprintf(tw, "  %s\t%d\n", f.Fault, f.Count)
		if f.Fault == TopicDuplicate {
			continue
		}
		for _, o := range f.Offenders {
			fmt.Fprintf(tw, "\t%s %s report %d sequence %d/%d: %s\n", o.Device, o.Stream, o.Report, o.Epoch, o.Sequence, o.Detail)
		}
	}
}

// add counts n cases of f and keeps the first offenders.
func (r *Result) add(f Fault, n int64, o Offender) {
	found := r.findings[f]
	if found == nil {
		found = &Finding{Fault: f}
		r.findings[f] = found
	}
	found.Count += n
	if len(found.Offenders) < maxOffenders {
		found.Offenders = append(found.Offenders, o)
	}
}

// report adds one case about a report.
func (r *Result) report(f Fault, stream int, number uint32, format string, args ...any) {
	s := r.book.Streams[stream]
	r.add(f, 1, Offender{Device: s.Device, Stream: s.Name, Report: number, Detail: fmt.Sprintf(format, args...)})
}

// event adds one case about an event.
func (r *Result) event(f Fault, e Event, format string, args ...any) {
	s := r.book.Streams[e.Stream]
	r.add(f, 1, Offender{
		Device: s.Device, Stream: s.Name, Report: e.Report, Epoch: e.Epoch, Sequence: e.Sequence,
		Detail: fmt.Sprintf(format, args...),
	})
}
