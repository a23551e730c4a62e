package partitions

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestPlan_RandomHistoriesKeepTheInvariants lets the clock run and jump, the interval change, rows hold partitions and
// archives fail, in random order; world.check holds after each turn: the ranges never overlap, the current and the next
// two are attached, nothing but the runway lies above the floor unattached.
func TestPlan_RandomHistoriesKeepTheInvariants_P1(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for history := range 200 {
		random := rand.New(rand.NewPCG(seed, uint64(history)))
		w := newWorld(t, "2026-03-01 10:20", Spec{Interval: hour, Runway: 5 * hour, RetainSent: 9 * hour, Archive: random.IntN(2) == 0})
		for range 40 {
			w.disturb(random)
			w.tick()
			if t.Failed() {
				t.Fatalf("seed %d, history %d:\n%s", seed, history, w.log.String())
			}
		}
	}
}

func (w *world) disturb(random *rand.Rand) {
	switch random.IntN(10) {
	case 0:
		w.now = w.now.Add(time.Duration(random.IntN(60)-30) * hour)
		w.note("the clock jumps")
	case 1:
		w.spec.Interval = []time.Duration{time.Minute * 7, hour / 4, hour, 3 * hour, 24 * hour}[random.IntN(5)]
		w.note("the interval becomes %s", w.spec.Interval)
	case 2:
		if n := len(w.state.Partitions); n > 0 {
			w.undrained[w.state.Partitions[random.IntN(n)].Name] = "a row lies above its cursor"
		}
	case 3:
		clear(w.undrained)
	case 4:
		w.archiveFails = !w.archiveFails
	case 5:
		w.spec.KeepAttached = random.IntN(4)
	case 6:
		w.ensure(later(w.now.Add(time.Duration(random.IntN(40)-10)*hour), w.state.Floor))
	default:
		w.now = w.now.Add(time.Duration(random.IntN(90)) * time.Minute)
	}
}

// ensure is the database's ensure_partition on the model: a writer whose clock is elsewhere.
func (w *world) ensure(at time.Time) {
	w.note("a writer needs %s", stamp(at))
	var have []span
	for i := range w.state.Partitions {
		part := &w.state.Partitions[i]
		if part.span().covers(at) && (part.Phase == Ahead || part.Phase == Live) {
			w.apply(Action{Kind: Attach, Partition: part.Name})
			return
		}
		have = append(have, part.span())
	}
	spec := w.spec.withDefaults()
	r := spec.free(at, w.state.Floor, have)
	w.apply(Action{Kind: Create, Partition: spec.nameOf(r), From: r.From, To: r.To})
	w.apply(Action{Kind: Attach, Partition: spec.nameOf(r)})
}
