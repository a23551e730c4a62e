package outbox

import (
	"slices"
	"strconv"
)

// Reasons a range of sequences was left out.
const (
	SkippedSuperseded = "superseded" // a newer row of the stream stood in the backlog
	SkippedDead       = "dead"       // the row is in outbox_dead
)

// skip is one row of outbox_skipped.
type skip struct {
	from, to int64
	reason   string
}

// skipIndex holds the skipped ranges of a bucket that no event behind the cursor has carried yet, ordered per stream.
// It is immutable: the engine replaces it, so a sweep that is under way keeps the one it started with.
type skipIndex struct {
	ranges map[streamKey][]skip
}

func (x *skipIndex) empty() bool { return x == nil || len(x.ranges) == 0 }

// before returns the ranges of the stream below sequence.
func (x *skipIndex) before(k streamKey, sequence int64) []skip {
	if x.empty() {
		return nil
	}
	all := x.ranges[k]
	n := 0
	for n < len(all) && all[n].to < sequence {
		n++
	}
	return all[:n]
}

// contains reports whether the sequence was recorded as skipped: it stays skipped for every later owner (O2).
func (x *skipIndex) contains(k streamKey, sequence int64) bool {
	if x.empty() {
		return false
	}
	return slices.ContainsFunc(x.ranges[k], func(s skip) bool { return s.from <= sequence && sequence <= s.to })
}

// end is the last sequence of the stream that was recorded; 0 when none was.
func (x *skipIndex) end(k streamKey) int64 {
	if x.empty() {
		return 0
	}
	var end int64
	for _, s := range x.ranges[k] {
		end = max(end, s.to)
	}
	return end
}

// with returns an index that also holds s.
func (x *skipIndex) with(k streamKey, s skip) *skipIndex {
	next := x.clone()
	ranges := append(slices.Clone(next.ranges[k]), s)
	slices.SortFunc(ranges, func(a, b skip) int { return int(a.from - b.from) })
	next.ranges[k] = ranges
	return next
}

// without returns an index that no longer holds what the carried records took along.
func (x *skipIndex) without(done []carried) *skipIndex {
	if x.empty() || len(done) == 0 {
		return x
	}
	next := x.clone()
	for _, c := range done {
		rest := slices.DeleteFunc(slices.Clone(next.ranges[c.stream]), func(s skip) bool { return s.to < c.below })
		if len(rest) == 0 {
			delete(next.ranges, c.stream)
			continue
		}
		next.ranges[c.stream] = rest
	}
	return next
}

func (x *skipIndex) clone() *skipIndex {
	next := &skipIndex{ranges: make(map[streamKey][]skip)}
	if x != nil {
		for k, v := range x.ranges {
			next.ranges[k] = v
		}
	}
	return next
}

// appendSkips renders ce_skipped: "41-57:superseded,58:dead".
func appendSkips(dst []byte, skips []skip) []byte {
	for i, s := range skips {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, s.from, 10)
		if s.to != s.from {
			dst = append(dst, '-')
			dst = strconv.AppendInt(dst, s.to, 10)
		}
		dst = append(dst, ':')
		dst = append(dst, s.reason...)
	}
	return dst
}
