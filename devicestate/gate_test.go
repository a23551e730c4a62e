package devicestate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
)

func at(epoch, sequence int64) devicestate.Position {
	return devicestate.Position{Epoch: epoch, Sequence: sequence}
}

func TestPositionCheck_DecidesByEpochThenSequence(t *testing.T) {
	t.Parallel()
	const largest = math.MaxInt64
	for _, test := range []struct {
		last, next devicestate.Position
		skips      string
		want       devicestate.Outcome
		missing    devicestate.Range
		lost       string
	}{
		{last: at(0, 0), next: at(1, 1), want: devicestate.Baseline},
		{last: at(0, 0), next: at(7, 4711), want: devicestate.Baseline},
		{last: at(1, 1), next: at(1, 2), want: devicestate.Apply},
		{last: at(1, 2), next: at(1, 2), want: devicestate.Again},
		{last: at(1, 2), next: at(1, 1), want: devicestate.Old},
		{last: at(2, 1), next: at(1, 900), want: devicestate.Old},
		{last: at(1, 900), next: at(2, 1), want: devicestate.NewEpoch},
		{last: at(1, 900), next: at(3, 77), want: devicestate.NewEpoch},
		{last: at(1, 2), next: at(1, 4), want: devicestate.Hole, missing: devicestate.Range{From: 3, To: 3}, lost: "3-3"},
		{last: at(1, 2), next: at(1, 9), want: devicestate.Hole, missing: devicestate.Range{From: 3, To: 8}, lost: "3-8"},
		{last: at(1, 2), next: at(1, 9), skips: "3-8:superseded", want: devicestate.Hole, missing: devicestate.Range{From: 3, To: 8}},
		{last: at(1, 2), next: at(1, 9), skips: "1-100:superseded", want: devicestate.Hole, missing: devicestate.Range{From: 3, To: 8}},
		{last: at(1, 2), next: at(1, 9), skips: "3:dead,5-6:superseded", want: devicestate.Hole, missing: devicestate.Range{From: 3, To: 8}, lost: "4-4 7-8"},
		{last: at(1, 2), next: at(1, 9), skips: "8:dead,9-12:superseded", want: devicestate.Hole, missing: devicestate.Range{From: 3, To: 8}, lost: "3-7"},
		{last: at(1, 2), next: at(1, 9), skips: "1-2:superseded", want: devicestate.Hole, missing: devicestate.Range{From: 3, To: 8}, lost: "3-8"},
		{last: at(1, largest-2), next: at(1, largest), want: devicestate.Hole, missing: devicestate.Range{From: largest - 1, To: largest - 1}, lost: "9223372036854775806-9223372036854775806"},
		{last: at(1, largest-1), next: at(1, largest), want: devicestate.Apply},
	} {
		skips, err := devicestate.ParseSkips(test.skips)
		if err != nil {
			t.Fatal(err)
		}
		got := test.last.Check(test.next, skips)
		if got.Outcome != test.want || got.Missing != test.missing || ranges(got.Lost) != test.lost {
			t.Errorf("%v then %v with %q: %v missing %v lost %q, want %v missing %v lost %q",
				test.last, test.next, test.skips, got.Outcome, got.Missing, ranges(got.Lost), test.want, test.missing, test.lost)
		}
	}
}

func ranges(rs []devicestate.Range) string {
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = fmt.Sprintf("%d-%d", r.From, r.To)
	}
	return strings.Join(texts, " ")
}

// TestPositionCheck_NeverBackAndEveryLossOnce_C1_C2 feeds random copies of a stream and compares with plain sets.
func TestPositionCheck_NeverBackAndEveryLossOnce_C1_C2(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var last devicestate.Position
		applied, lost, explained := map[devicestate.Position]bool{}, map[devicestate.Position]bool{}, map[devicestate.Position]bool{}
		for range 80 {
			next := at(1+rng.Int64N(3), 1+rng.Int64N(40))
			skips := randomSkips(rng, next.Sequence)
			v := last.Check(next, skips)
			if v.Applies() != last.Less(next) || applied[next] && v.Applies() {
				t.Fatalf("seed %d: %v after %v: %v", seed, next, last, v.Outcome)
			}
			if !v.Applies() {
				continue
			}
			if v.Outcome == devicestate.Hole {
				for n := last.Sequence + 1; n < next.Sequence; n++ {
					covered := slices.ContainsFunc(skips, func(s devicestate.Skip) bool { return s.From <= n && n <= s.To })
					inLost := slices.ContainsFunc(v.Lost, func(r devicestate.Range) bool { return r.From <= n && n <= r.To })
					if covered == inLost || lost[at(next.Epoch, n)] || explained[at(next.Epoch, n)] {
						t.Fatalf("seed %d: %d between %v and %v: in a skip %v, lost %v, or told before", seed, n, last, next, covered, inLost)
					}
					if covered {
						explained[at(next.Epoch, n)] = true
					} else {
						lost[at(next.Epoch, n)] = true
					}
				}
			}
			applied[next], last = true, next
		}
	}
}

func randomSkips(rng *rand.Rand, before int64) (skips []devicestate.Skip) {
	for from := int64(1); from < before; {
		from += rng.Int64N(8)
		to := from + rng.Int64N(4)
		skips = append(skips, devicestate.Skip{Range: devicestate.Range{From: from, To: to}, Reason: "superseded"})
		from = to + 1 + rng.Int64N(5)
	}
	return skips
}

func TestParseSkips_ReadsWhatTheRelayWrites(t *testing.T) {
	t.Parallel()
	skips, err := devicestate.ParseSkips("41-57:superseded,58:dead,60-60:later_reason")
	want := "[{{41 57} superseded} {{58 58} dead} {{60 60} later_reason}]"
	if err != nil || fmt.Sprint(skips) != want {
		t.Errorf("%v, %v, want %s", skips, err, want)
	}
	if skips, err := devicestate.ParseSkips(""); skips != nil || err != nil {
		t.Errorf("no header: %v, %v", skips, err)
	}
	for _, bad := range []string{
		"41", "41-57", ":dead", "41-:dead", "-57:dead", "57-41:dead", "0-3:dead", "-1:dead", "1-2:", "a:dead", "1:dead,", "1:dead,,2:dead",
		"5:dead,4:dead", "1-5:dead,5:dead", "9223372036854775808:dead", "1.5:dead",
		strings.Repeat("1:dead,", 5000),
	} {
		if skips, err := devicestate.ParseSkips(bad); err == nil {
			t.Errorf("%.40q was read as %v", bad, skips)
		}
	}
}

func FuzzParseSkips(f *testing.F) {
	f.Add("41-57:superseded,58:dead")
	f.Fuzz(func(t *testing.T, header string) {
		skips, err := devicestate.ParseSkips(header)
		if err != nil {
			return
		}
		last := int64(0)
		for _, s := range skips {
			if s.From <= last || s.To < s.From {
				t.Fatalf("%q: %v is out of order", header, s)
			}
			last = s.To
		}
		at(1, 1).Check(at(1, math.MaxInt64), skips)
	})
}

func TestOutcome_HasAName(t *testing.T) {
	t.Parallel()
	for o := devicestate.Apply; o <= devicestate.Old; o++ {
		if o.String() == "" || o.String() == "unknown" {
			t.Errorf("outcome %d has no name", o)
		}
	}
	if got := devicestate.Outcome(200).String(); got != "unknown" {
		t.Errorf("outcome 200 is %q", got)
	}
}
