package consumertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// history is a random topic of one partition and a consumer that is interrupted at random: handlers that fail, crashes between
// handling and advancing and between advancing and committing, rebalances to an older offset, restarts.
type history struct {
	t     *testing.T
	s     Store
	rng   *rand.Rand
	log   []*kgo.Record
	steps []string // what was done, printed when it failed

	store     consumer.Store
	confirmed int64
	next      int
	committed int

	outside  map[string][]devicestate.Position // what Config.Handler was given
	applied  map[string][]devicestate.Position // what successful calls of Process said was applied
	lost     map[string][]devicestate.Range    // what they said was lost
	position map[string]devicestate.Position
}

var errInjected = errors.New("injected")

func testRandomHistory(t *testing.T, s Store, seed uint64) {
	h := &history{
		t: t, s: s, rng: rand.New(rand.NewPCG(seed, seed)), confirmed: consumer.Unknown,
		outside: map[string][]devicestate.Position{}, applied: map[string][]devicestate.Position{},
		lost: map[string][]devicestate.Range{}, position: map[string]devicestate.Position{},
	}
	h.log = randomTopic(h.rng)
	h.store = s.Open()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d: %v", seed, h.steps)
		}
	})
	for h.next < len(h.log) {
		h.step()
		h.checkNoStepBack()
	}
	h.check()
}

func (h *history) did(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}

// step processes one batch, or interrupts.
func (h *history) step() {
	size := min(1+h.rng.IntN(12), len(h.log)-h.next)
	records := make([]*kgo.Record, size)
	for i, r := range h.log[h.next : h.next+size] {
		fresh := *r
		records[i] = &fresh
	}
	b := batch(h.t, h.confirmed, int64(h.next), records...)
	switch h.rng.IntN(8) {
	case 0:
		h.fail(b, false)
	case 1:
		h.fail(b, true)
	case 2:
		h.process(b)
		h.rebalance()
	case 3:
		h.fail(b, true)
		h.rebalance()
	default:
		h.process(b)
		if h.rng.IntN(2) == 0 {
			h.committed = h.next
		}
	}
}

func (h *history) process(b *consumer.Batch) {
	h.did("process %d..%d", h.next, b.Next)
	if err := h.store.Process(h.t.Context(), b, h.handle); err != nil {
		h.t.Fatal(err)
	}
	h.next, h.confirmed = int(b.Next), b.Confirmed
	for _, d := range b.Deliveries {
		if d.Verdict.Applies() {
			h.applied[d.Event.Device] = append(h.applied[d.Event.Device], d.Position())
		}
		h.lost[d.Event.Device] = append(h.lost[d.Event.Device], d.Verdict.Lost...)
	}
}

// fail has the handler fail before or after it has had its effect: the latter is a crash between handling and advancing.
func (h *history) fail(b *consumer.Batch, handled bool) {
	h.did("fail %d..%d (handled: %v)", h.next, b.Next, handled)
	called := false
	err := h.store.Process(h.t.Context(), b, func(ctx context.Context, ds []*consumer.Delivery) error {
		called = true
		if handled {
			_ = h.handle(ctx, ds)
		}
		return errInjected
	})
	if called != errors.Is(err, errInjected) {
		h.t.Fatalf("handler called: %v, error: %v", called, err)
	}
	if err == nil { // nothing of the batch was for the handler
		h.next, h.confirmed = int(b.Next), b.Confirmed
	}
}

// rebalance gives the partition to a new owner, which goes on where the group and the store say.
func (h *history) rebalance() {
	h.store = h.s.Open()
	resume, err := h.store.Resume(h.t.Context(), topicName, map[int32]int64{0: int64(h.committed)})
	if err != nil {
		h.t.Fatal(err)
	}
	h.did("rebalance, committed %d: %+v", h.committed, resume[0])
	h.next, h.confirmed = int(max(0, resume[0].Offset)), resume[0].Confirmed
	if h.s.Volatile {
		clear(h.position)
	}
}

func (h *history) handle(_ context.Context, ds []*consumer.Delivery) error {
	for _, d := range ds {
		h.outside[d.Event.Device] = append(h.outside[d.Event.Device], d.Position())
	}
	return nil
}

func (h *history) checkNoStepBack() {
	for _, device := range historyDevices() {
		now := h.s.Position(h.t, device)
		if now.Less(h.position[device]) {
			h.t.Fatalf("position of %s went back from %v to %v (C1)", device, h.position[device], now)
		}
		h.position[device] = now
	}
}

// check compares with the truth, which follows from the topic alone: each new maximum is applied once.
func (h *history) check() {
	for _, device := range historyDevices() {
		want, lost := truth(h.log, device)
		if got := firsts(h.outside[device]); !slices.Equal(got, want) {
			h.t.Errorf("first handling of %s: %v, want %v", device, got, want)
		}
		if h.s.Volatile {
			continue // the weaker promise: at least once
		}
		h.s.wantPosition(h.t, device, want[len(want)-1])
		h.s.wantEffects(h.t, device, want...)
		if !slices.Equal(h.applied[device], want) {
			h.t.Errorf("verdicts of %s: applied %v, want %v", device, h.applied[device], want)
		}
		if !slices.Equal(h.lost[device], lost) {
			h.t.Errorf("lost of %s: %v, want %v", device, h.lost[device], lost)
		}
	}
}

func historyDevices() []string { return []string{"a", "b", "c", "d"} }

// randomTopic is what a relay may leave on a partition: dense sequences of several devices with losses, explained ranges,
// topic duplicates, replays of anything older, and new epochs.
func randomTopic(rng *rand.Rand) []*kgo.Record {
	var log []*kgo.Record
	last := map[string]devicestate.Position{}
	for _, device := range historyDevices() {
		log = append(log, event(device, 1, 1))
		last[device] = at(1, 1)
	}
	for len(log) < 150 {
		device := historyDevices()[rng.IntN(4)]
		p := last[device]
		switch rng.IntN(12) {
		case 0: // lost without a trace
			p.Sequence += int64(2 + rng.IntN(3))
			log = append(log, event(device, p.Epoch, p.Sequence))
		case 1: // superseded, all or in part
			from, gone := p.Sequence+1, int64(1+rng.IntN(4))
			p.Sequence += gone + 1 + int64(rng.IntN(2))
			log = append(log, event(device, p.Epoch, p.Sequence, Skipped(fmt.Sprintf("%d-%d:superseded", from, from+gone-1))))
		case 2:
			p = at(p.Epoch+int64(1+rng.IntN(3)), int64(1+rng.IntN(5)))
			log = append(log, event(device, p.Epoch, p.Sequence))
		case 3, 4: // a stretch comes again, as after a relay's crash
			from := rng.IntN(len(log))
			log = append(log, log[from:min(len(log), from+1+rng.IntN(6))]...)
		case 5: // an operator's replay
			old := log[rng.IntN(len(log))]
			again := *old
			Replayed("replay-1")(&again)
			log = append(log, &again)
		default:
			p.Sequence++
			log = append(log, event(device, p.Epoch, p.Sequence))
		}
		last[device] = p
	}
	return log
}

// truth is the gate's promise computed from the whole topic, without the gate: the running maxima, and the numbers of an
// epoch between two of them that no header explains.
func truth(log []*kgo.Record, device string) (applied []devicestate.Position, lost []devicestate.Range) {
	for _, r := range log {
		d, err := consumer.Decode(r)
		if err != nil || d.Event.Device != device {
			continue
		}
		p := d.Position()
		if len(applied) > 0 {
			last := applied[len(applied)-1]
			if p.Epoch < last.Epoch || p.Epoch == last.Epoch && p.Sequence <= last.Sequence {
				continue
			}
			if p.Epoch == last.Epoch {
				lost = append(lost, unexplained(last.Sequence, p.Sequence, d.Skips)...)
			}
		}
		applied = append(applied, p)
	}
	return applied, lost
}

func unexplained(after, before int64, skips []devicestate.Skip) (lost []devicestate.Range) {
	for n := after + 1; n < before; n++ {
		if slices.ContainsFunc(skips, func(s devicestate.Skip) bool { return s.From <= n && n <= s.To }) {
			continue
		}
		if k := len(lost); k > 0 && lost[k-1].To == n-1 {
			lost[k-1].To = n
			continue
		}
		lost = append(lost, devicestate.Range{From: n, To: n})
	}
	return lost
}

// firsts drops repetitions, also those of a stretch that was handled again.
func firsts(all []devicestate.Position) (first []devicestate.Position) {
	for _, p := range all {
		if len(first) == 0 || first[len(first)-1].Less(p) {
			first = append(first, p)
		}
	}
	return first
}
