package monitor

import (
	"math"
	"time"
)

// Stage is one leg of the way from the device to this screen.
type Stage string

// The stages. StageReceived compares a device's clock with ours, so it is left out for devices whose clock is suspect.
const (
	StageReceived  Stage = "received"  // occurred → received
	StageCommitted Stage = "committed" // received → committed
	StagePublished Stage = "published" // committed → published
	StageApplied   Stage = "applied"   // published → applied
	StageWhole     Stage = "whole"     // received → applied: everything that is ours
)

// countable reports whether a delay says something about a stage. A day is no time on the way from a device: it is a shelf
// or a clock, and would hide the way of all others.
func countable(s Stage, d time.Duration, clockSuspect bool) bool {
	return s != StageReceived || !clockSuspect && d <= 24*time.Hour
}

// Stages lists every stage in the order of the way.
func Stages() []Stage {
	return []Stage{StageReceived, StageCommitted, StagePublished, StageApplied, StageWhole}
}

// Instants are the five instants of one event; a zero one is not known.
type Instants struct {
	Occurred, Received, Committed, Published, Applied time.Time
}

// Delays calls visit for each stage whose two ends are known. Clocks of two machines differ: a delay below zero is zero.
func (i Instants) Delays(visit func(Stage, time.Duration)) {
	leg := func(s Stage, from, to time.Time) {
		if !from.IsZero() && !to.IsZero() {
			visit(s, max(0, to.Sub(from)))
		}
	}
	leg(StageReceived, i.Occurred, i.Received)
	leg(StageCommitted, i.Received, i.Committed)
	leg(StagePublished, i.Committed, i.Published)
	leg(StageApplied, i.Published, i.Applied)
	leg(StageWhole, i.Received, i.Applied)
}

// Bins of a Histogram: four an octave from 1 ms, so a quantile is right within 10 %; the last one is open (2 days).
const (
	binsPerOctave = 4
	binCount      = 110
)

// Histogram counts delays in logarithmic bins. The zero value is empty. Not safe for concurrent use.
type Histogram struct {
	bins  [binCount]int64
	total int64
}

// Bin is the bin of d: 0 is below a millisecond.
func Bin(d time.Duration) int {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 1 {
		return 0
	}
	return min(1+int(binsPerOctave*math.Log2(ms)), binCount-1)
}

// Add counts n delays of a bin; a bin that does not exist is ignored.
func (h *Histogram) Add(bin int, n int64) {
	if bin < 0 || bin >= binCount {
		return
	}
	h.bins[bin] += n
	h.total += n
}

// Merge adds the counts of o.
func (h *Histogram) Merge(o *Histogram) {
	for bin, n := range o.bins {
		h.bins[bin] += n
	}
	h.total += o.total
}

// Count is the number of delays counted.
func (h *Histogram) Count() int64 { return h.total }

// Quantile is the delay that the share q (0 to 1) of all stay within; ok is false when nothing was counted.
func (h *Histogram) Quantile(q float64) (d time.Duration, ok bool) {
	if h.total == 0 {
		return 0, false
	}
	rank := max(1, int64(math.Ceil(q*float64(h.total))))
	var seen int64
	for bin, n := range h.bins {
		if seen += n; seen >= rank {
			return middle(bin), true
		}
	}
	return middle(binCount - 1), true
}

// middle is the geometric middle of a bin.
func middle(bin int) time.Duration {
	if bin == 0 {
		return time.Millisecond / 2
	}
	return time.Duration(math.Exp2((float64(bin)-0.5)/binsPerOctave) * float64(time.Millisecond))
}
