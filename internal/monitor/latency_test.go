package monitor

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogram_QuantilesAreRightWithinTenPercent(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	var h Histogram
	var all []time.Duration
	for range 20000 {
		d := time.Duration(float64(5*time.Millisecond) * (1 + r.ExpFloat64()*20))
		all = append(all, d)
		h.Add(Bin(d), 1)
	}
	slices.Sort(all)
	for _, q := range []float64{0.5, 0.95, 0.99, 1} {
		want := all[max(0, int(q*float64(len(all)))-1)]
		got, ok := h.Quantile(q)
		if ratio := float64(got) / float64(want); !ok || ratio < 0.9 || ratio > 1.1 {
			t.Errorf("seed %d: p%v is %v, want %v", seed, q*100, got, want)
		}
	}
}

func TestHistogram_Edges(t *testing.T) {
	t.Parallel()
	var h Histogram
	if _, ok := h.Quantile(0.5); ok {
		t.Error("an empty histogram has no quantile")
	}
	h.Add(-1, 5)
	h.Add(binCount, 5)
	if h.Count() != 0 {
		t.Error("bins that do not exist were counted")
	}
	for _, d := range []time.Duration{-time.Second, 0, 999 * time.Microsecond} {
		if Bin(d) != 0 {
			t.Errorf("Bin(%v) = %d", d, Bin(d))
		}
	}
	if Bin(time.Millisecond) != 1 || Bin(1<<62) != binCount-1 {
		t.Error("first or last bin wrong")
	}
	for bin := 1; bin < binCount; bin++ {
		if Bin(middle(bin)) != bin {
			t.Errorf("the middle of bin %d lies in bin %d", bin, Bin(middle(bin)))
		}
	}
}

func TestInstants_LeaveOutLegsWithAnUnknownEnd(t *testing.T) {
	t.Parallel()
	got := map[Stage]time.Duration{}
	i := Instants{Received: ago(10 * time.Second), Committed: ago(9 * time.Second), Published: ago(11 * time.Second), Applied: noon}
	i.Delays(func(s Stage, d time.Duration) { got[s] = d })
	want := map[Stage]time.Duration{StageCommitted: time.Second, StagePublished: 0, StageApplied: 11 * time.Second, StageWhole: 10 * time.Second}
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for s, d := range want {
		if got[s] != d {
			t.Errorf("%s: %v, want %v", s, got[s], d)
		}
	}
}
