package peers

import "testing"

func TestTally_TellsRepeatedFromReordered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows                          []row
		distinct, repeated, reordered int64
	}{
		"in order":             {[]row{{"a", 1}, {"a", 2}, {"a", 3}}, 3, 0, 0},
		"two devices":          {[]row{{"a", 1}, {"b", 1}, {"a", 2}, {"b", 2}}, 4, 0, 0},
		"a run sent again":     {[]row{{"a", 1}, {"a", 2}, {"a", 3}, {"a", 2}, {"a", 3}, {"a", 4}}, 4, 2, 0},
		"two swapped":          {[]row{{"a", 1}, {"a", 3}, {"a", 2}, {"a", 4}}, 4, 0, 1},
		"one lost":             {[]row{{"a", 1}, {"a", 3}, {"a", 4}}, 3, 0, 0},
		"late, then once more": {[]row{{"a", 1}, {"a", 3}, {"a", 2}, {"a", 2}}, 3, 1, 1},
		"no sequence":          {[]row{{"a", 1}, {"a", 0}}, 1, 1, 0},
	} {
		tally := newTally()
		for _, r := range c.rows {
			tally.add(r.device, r.sequence)
		}
		if tally.Distinct != c.distinct || tally.Repeated != c.repeated || tally.Reordered != c.reordered {
			t.Errorf("%s: got %+v", name, *tally)
		}
	}
}
