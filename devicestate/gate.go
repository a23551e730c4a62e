package devicestate

import (
	"fmt"
	"strconv"
	"strings"
)

// Position is the last (epoch, sequence) a consumer saw of a stream. The zero value has seen nothing.
type Position struct {
	Epoch    int64
	Sequence int64
}

// Less orders positions: epoch first.
func (p Position) Less(q Position) bool {
	return p.Epoch < q.Epoch || (p.Epoch == q.Epoch && p.Sequence < q.Sequence)
}

// Outcome is what a consumer does with an event.
type Outcome uint8

// The outcomes. Only the first four move the position.
const (
	Apply    Outcome = iota + 1 // the next of the stream
	Baseline                    // the first seen of the stream: nothing is known of what was before
	NewEpoch                    // the first of a higher epoch: the past was changed upstream
	Hole                        // applied, but sequences between are missing: see Verdict
	Again                       // a duplicate: exactly the last seen
	Old                         // older than the last seen
)

var outcomeNames = [...]string{"", "apply", "baseline", "new_epoch", "hole", "duplicate", "late"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}

// Verdict is the gate's answer. Lost lists the missing sequences that no skip explains: loss inside the pipeline (C2).
type Verdict struct {
	Outcome Outcome
	Missing Range   // with Hole: all sequences between; zero otherwise
	Lost    []Range // the part of Missing without an explanation
}

// Applies reports whether the event is to be handled and the position moves to it.
func (v Verdict) Applies() bool { return v.Outcome >= Apply && v.Outcome <= Hole }

// Check is the gate: it decides about an event at next whose record carried skips, for a consumer at p. A position that
// is not above p is never applied (C1); a hole is reported and never waited for (C2). It is pure.
func (p Position) Check(next Position, skips []Skip) Verdict {
	switch {
	case p == next:
		return Verdict{Outcome: Again}
	case next.Less(p):
		return Verdict{Outcome: Old}
	case p == Position{}:
		return Verdict{Outcome: Baseline}
	case next.Epoch > p.Epoch:
		return Verdict{Outcome: NewEpoch}
	case next.Sequence == p.Sequence+1:
		return Verdict{Outcome: Apply}
	}
	missing := Range{From: p.Sequence + 1, To: next.Sequence - 1}
	return Verdict{Outcome: Hole, Missing: missing, Lost: unexplained(missing, skips)}
}

// Skip is a range of sequences that the relay left out on purpose, in ce_skipped of the event after it.
type Skip struct {
	Range
	Reason string // superseded or dead
}

// unexplained subtracts skips, which are ordered by From, from r.
func unexplained(r Range, skips []Skip) []Range {
	var lost []Range
	at := r.From
	for _, s := range skips {
		if s.To < at || s.From > r.To {
			continue
		}
		if s.From > at {
			lost = append(lost, Range{From: at, To: s.From - 1})
		}
		at = s.To + 1
	}
	if at <= r.To {
		lost = append(lost, Range{From: at, To: r.To})
	}
	return lost
}

// maxSkips bounds what one header may claim.
const maxSkips = 4096

// ParseSkips reads the header ce_skipped: "41-57:superseded,58:dead", ordered by sequence.
func ParseSkips(header string) ([]Skip, error) {
	if header == "" {
		return nil, nil
	}
	parts := strings.Split(header, ",")
	if len(parts) > maxSkips {
		return nil, fmt.Errorf("ce_skipped: %d ranges, limit %d", len(parts), maxSkips)
	}
	skips := make([]Skip, 0, len(parts))
	for _, part := range parts {
		s, err := parseSkip(part)
		if err != nil {
			return nil, err
		}
		if n := len(skips); n > 0 && s.From <= skips[n-1].To {
			return nil, fmt.Errorf("ce_skipped: %q is not after the range before it", part)
		}
		skips = append(skips, s)
	}
	return skips, nil
}

func parseSkip(part string) (Skip, error) {
	numbers, reason, ok := strings.Cut(part, ":")
	from, to, isRange := strings.Cut(numbers, "-")
	if !isRange {
		to = from
	}
	a, errA := strconv.ParseInt(from, 10, 64)
	b, errB := strconv.ParseInt(to, 10, 64)
	if !ok || reason == "" || errA != nil || errB != nil || a < 1 || b < a {
		return Skip{}, fmt.Errorf("ce_skipped: %q is not FROM-TO:REASON", part)
	}
	return Skip{Range{a, b}, reason}, nil
}
