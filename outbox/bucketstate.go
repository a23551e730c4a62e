package outbox

import (
	"slices"
	"time"
)

// bucketPhase is where an owned bucket stands.
type bucketPhase uint8

const (
	phaseChecking bucketPhase = iota // the tail of the topic is being compared with the cursor
	phaseActive                      // read and published
	phaseDeciding                    // a row is being parked: nothing is read or sent meanwhile
)

// bucketState is an owned bucket. Only the engine's goroutine touches it.
//
//	cursor ≤ acked ≤ sent ≤ readTo
//
// cursor is in the database; acked is acknowledged by the broker or otherwise decided; rows up to readTo are in windows.
type bucketState struct {
	id     int16
	term   int64
	phase  bucketPhase
	cursor int64
	acked  int64
	readTo int64

	windows    []*window // read, in order; the first may be partly submitted
	sent       int       // rows of windows[0] that were acknowledged
	inFlight   bool      // windows[0] is part of an outstanding group
	reading    bool      // a sweep is out for it
	more       bool      // rows stand behind readTo
	generation int       // raised to throw away what was read or is being read

	planning bool    // a plan is wanted: nothing more is read until what was read is decided
	plan     []int64 // with Backlog latest: the positions to publish up to the frozen head, ascending; the rest is superseded

	skips *skipIndex
	held  map[string]bool

	deciding string  // the aggregate whose parked rows are being released; empty = none
	released *window // its rows, next to be sent

	pending   advance // acknowledged, not yet written
	attempts  int     // of the row behind acked, sent alone
	firstTry  time.Time
	retryAt   time.Time
	releasing bool
	releaseBy time.Time
	writing   bool // the writer has a job of this bucket
}

// advance is what one cursor write of a bucket says.
type advance struct {
	rows    int64
	last    row
	carried []carried
}

// forget throws away all that was read behind acked; it will be read again.
func (b *bucketState) forget() (freed int64) {
	if b.released != nil && !b.inFlight {
		freed += int64(b.released.bytes)
		b.released.recycle()
		b.released, b.deciding = nil, ""
	}
	busy := b.inFlight && b.released == nil // the outstanding segment is of windows[0]
	for i, w := range b.windows {
		if i == 0 && busy {
			continue
		}
		freed += int64(w.bytes)
		w.recycle()
	}
	if busy {
		b.windows = b.windows[:1]
	} else {
		b.windows = b.windows[:0]
		b.sent = 0
	}
	b.generation++
	b.readTo, b.more = b.acked, true
	if busy {
		b.readTo = b.windows[0].last().position
	}
	return freed
}

// planned returns the next positions of the plan, nil when there is none left.
func (b *bucketState) planned(limit int) []int64 {
	i, _ := slices.BinarySearch(b.plan, b.readTo+1)
	if i == len(b.plan) {
		b.plan = nil
		return nil
	}
	return b.plan[i:min(len(b.plan), i+limit)]
}

// quiet reports whether nothing of the bucket is on its way anywhere.
func (b *bucketState) quiet() bool {
	return !b.inFlight && !b.writing && b.pending.rows == 0 && b.acked == b.cursor
}

// unwritten reports whether the cursor is behind what was acknowledged, and no write of it is on its way.
func (b *bucketState) unwritten() bool { return b.pending.last.position > b.cursor }

func (b *bucketState) readable(now time.Time) bool {
	return b.phase == phaseActive && !b.releasing && !b.planning && !b.reading && len(b.windows) < 2 && !now.Before(b.retryAt)
}
