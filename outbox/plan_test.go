package outbox

import (
	"reflect"
	"slices"
	"testing"
)

// What `latest` leaves out must be exactly what stands before the newest row of each stream: no more (a state would be
// lost), no less (consumers would count a loss), and nothing twice.
func TestDecidePlans_LeavesOutWhatStandsBeforeTheNewest_O5_C2(t *testing.T) {
	t.Parallel()
	k := func(aggregate string, epoch int64) streamKey { return streamKey{aggregate, "state", epoch} }
	groups := []backlogGroup{
		{1, k("a", 1), 5, 9, 900},                             // newest is 9: 5-8 are left out
		{1, k("b", 1), 7, 7, 700},                             // a single row: nothing is
		{1, k("c", 1), 3, 6, 600}, {1, k("c", 2), 1, 2, 1000}, // an epoch began: all of the old one, 1 of the new one
		{2, k("d", 1), 1, 10, 50},                               // 1-4 were recorded by an earlier plan
		{2, k("e", 1), 1, 4, 60},                                // so was all that stands before its newest
		{3, k("a", 1), 2, 3, 20}, {3, k("other a", 1), 2, 2, 9}, // another bucket has its own head
	}
	known := map[int16]*skipIndex{2: {ranges: map[streamKey][]skip{
		k("d", 1): {{1, 2, SkippedSuperseded}, {3, 4, SkippedDead}}, k("e", 1): {{1, 3, SkippedSuperseded}},
	}}}
	plans := map[int16]*plan{1: {}, 2: {}, 3: {}, 4: {}}
	skips := decidePlans(groups, known, plans)
	slices.SortFunc(skips, func(a, b newSkip) int {
		return int(a.bucket-b.bucket)*100 + int(a.key.aggregate[0]) - int(b.key.aggregate[0]) + int(a.key.epoch-b.key.epoch)
	})
	want := []newSkip{
		{1, k("a", 1), 5, 8, 1000}, {1, k("c", 1), 3, 6, 1000}, {1, k("c", 2), 1, 1, 1000},
		{2, k("d", 1), 5, 9, 60}, {3, k("a", 1), 2, 2, 20},
	}
	if !reflect.DeepEqual(skips, want) {
		t.Errorf("left out %v\nwant     %v", skips, want)
	}
	for bucket, p := range map[int16]plan{
		1: {positions: []int64{700, 900, 1000}, superseded: 9}, 2: {positions: []int64{50, 60}, superseded: 5},
		3: {positions: []int64{9, 20}, superseded: 1}, 4: {},
	} {
		if got := plans[bucket]; !slices.Equal(got.positions, p.positions) || got.superseded != p.superseded {
			t.Errorf("bucket %d: plan %v, %d left out; want %v, %d", bucket, got.positions, got.superseded, p.positions, p.superseded)
		}
	}
}
