package monitor

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestHorizon_SeenUntilIsProvenNotHoped(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	var h Horizon
	if !h.SeenUntil().IsZero() {
		t.Fatal("claims to have seen something without asking")
	}
	h.Ask(at(1), map[int32]Ends{0: {0, 10, false}, 1: {0, 0, false}})
	expect(t, &h, time.Time{}) // partition 1 is empty, but 0 has ten records to come
	h.Applied(map[int32]int64{0: 9})
	expect(t, &h, time.Time{})
	h.Applied(map[int32]int64{0: 10})
	expect(t, &h, at(1))

	// The ends move on while we lag: what was asked at 2 s is proven only when its ends are reached.
	h.Ask(at(2), map[int32]Ends{0: {0, 20, false}, 1: {0, 0, false}})
	h.Ask(at(3), map[int32]Ends{0: {0, 30, false}, 1: {0, 5, false}})
	h.Applied(map[int32]int64{0: 20, 1: 0})
	expect(t, &h, at(2))
	h.Applied(map[int32]int64{0: 30, 1: 5})
	expect(t, &h, at(3))

	// One partition without a leader holds the whole screen back.
	h.Ask(at(4), map[int32]Ends{0: {0, 30, false}, 1: {Unreachable: true}})
	expect(t, &h, at(3))

	// The view was flushed: nothing is proven until it has been read again.
	h.Applied(map[int32]int64{0: 0, 1: 5})
	expect(t, &h, time.Time{})
	if h.Lag() != 30 {
		t.Fatalf("lag %d, want 30", h.Lag())
	}
	h.Ask(at(5), map[int32]Ends{0: {0, 31, false}, 1: {0, 5, false}})
	h.Applied(map[int32]int64{0: 31, 1: 5})
	expect(t, &h, at(5))

	// Retention emptied a partition that was never applied: there is nothing to wait for.
	h.Ask(at(6), map[int32]Ends{0: {40, 40, false}, 1: {0, 5, false}})
	expect(t, &h, at(6))
}

func expect(t *testing.T, h *Horizon, want time.Time) {
	t.Helper()
	if got := h.SeenUntil(); !got.Equal(want) {
		t.Fatalf("seen until %v, want %v", got, want)
	}
}

// A model that remembers every question: the horizon must never claim more than the model can prove, and must catch up.
func TestHorizon_NeverClaimsMoreThanAModelProves(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	var h Horizon
	type asked struct {
		at  time.Time
		end int64
	}
	var questions []asked
	var end, applied int64
	for i := range 3000 {
		end += r.Int64N(5)
		applied += r.Int64N(max(1, end-applied+1))
		questions = append(questions, asked{noon.Add(time.Duration(i) * time.Second), end})
		h.Ask(questions[i].at, map[int32]Ends{0: {0, end, false}})
		h.Applied(map[int32]int64{0: applied})
		proven := time.Time{}
		for _, q := range questions {
			if q.end <= applied {
				proven = q.at
			}
		}
		if got := h.SeenUntil(); got.After(proven) {
			t.Fatalf("seed %d, step %d: claims %v, proven %v", seed, i, got, proven)
		}
		if applied == end && !h.SeenUntil().Equal(questions[i].at) {
			t.Fatalf("seed %d, step %d: everything is applied, yet seen until %v", seed, i, h.SeenUntil())
		}
	}
}

func TestAsOf_IsHeldBackByWhatWaitsInTheOutbox(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name               string
		seen, oldest, want time.Time
	}{
		{"nothing waits", ago(time.Second), time.Time{}, ago(time.Second)},
		{"the relay stands still", ago(time.Second), ago(time.Minute), ago(time.Minute)},
		{"the consumer is later than the relay", ago(time.Hour), ago(time.Minute), ago(time.Hour)},
		{"a clock ahead of ours", noon.Add(time.Second), time.Time{}, noon},
	} {
		if got := AsOf(c.seen, c.oldest, noon); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
