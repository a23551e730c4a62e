package consumertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Store is a position store under test, with what it declares.
type Store struct {
	// Open returns a store on the same data each time: the first of a consumer, and those of its restarts. It records the effect
	// of each event it is given, by device, if the store carries effects.
	Open func() consumer.Store

	// Volatile: a store opened again knows nothing (MemoryStore).
	Volatile bool

	// Effects returns what was recorded for a device, in order. nil: the store carries no effects of its own.
	Effects func(t *testing.T, device string) []devicestate.Position

	// Position returns the stored position of a device's stream "state".
	Position func(t *testing.T, device string) devicestate.Position

	// Forget removes everything behind the store's back, as a flush does. nil when Volatile.
	Forget func(t *testing.T)

	// Snapshot copies everything and returns what puts it back, as a restored backup or a lagging replica does. Optional.
	Snapshot func(t *testing.T) (restore func(t *testing.T))
}

// TestStore shows whether a store keeps the promises of consumer.Store (C1), with fixed cases and with random histories. setup is
// called for each case and returns a store without data. HUBSTATE_TEST_SEED repeats one random history.
func TestStore(t *testing.T, setup func(t *testing.T) Store) {
	for name, test := range map[string]func(*testing.T, Store){
		"Advances":                         testAdvances,
		"HandlerErrorMovesNothing_C1":      testHandlerErrorMovesNothing,
		"NoStepBack_C1":                    testNoStepBack,
		"PoisonOnlyBatchMovesTheOffset":    testEmptyBatch,
		"ResumesAtTheLowerOffset":          testResume,
		"NoticesThatItForgot":              testForgotten,
		"NoticesThatItWentBack":            testWentBack,
		"TwoOwnersAtOnce_EffectOnce_C1":    testTwoOwners,
		"LargeBatch":                       testLargeBatch,
		"EpochAndSequenceUpToTheLargest":   testLargestNumbers,
		"CancelledContextMovesNothing_C1":  testCancelled,
		"PermanentAndOutageArePassedOn":    testMarkedErrors,
		"ConfirmsWhatAnotherOwnerAdvanced": testConfirmed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, setup(t))
		})
	}
	for _, seed := range seeds(t) {
		t.Run(fmt.Sprintf("RandomHistory_C1/seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			testRandomHistory(t, setup(t), seed)
		})
	}
}

func seeds(t *testing.T) []uint64 {
	if given := os.Getenv("HUBSTATE_TEST_SEED"); given != "" {
		seed, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	n := uint64(12)
	if testing.Short() {
		n = 3
	}
	all := make([]uint64, n)
	for i := range all {
		all[i] = uint64(i) + 1
	}
	return all
}

const topicName = "device-state"

// batch is what a partition's worker would hand to the store: records at consecutive offsets from first.
func batch(t *testing.T, confirmed, first int64, records ...*kgo.Record) *consumer.Batch {
	t.Helper()
	b := &consumer.Batch{Topic: topicName, Next: first + int64(len(records)), Confirmed: confirmed}
	for i, r := range records {
		r.Offset = first + int64(i)
		d, err := consumer.Decode(r)
		if err != nil {
			t.Fatal(err)
		}
		b.Deliveries = append(b.Deliveries, d)
	}
	return b
}

func event(device string, epoch, sequence int64, changes ...func(*kgo.Record)) *kgo.Record {
	return Record(topicName, Event(device, epoch, sequence), changes...)
}

func process(t *testing.T, s consumer.Store, b *consumer.Batch, handle consumer.Handler) {
	t.Helper()
	if err := s.Process(t.Context(), b, handle); err != nil {
		t.Fatal(err)
	}
}

func outcomes(b *consumer.Batch) string {
	text := ""
	for _, d := range b.Deliveries {
		text += d.Verdict.Outcome.String() + " "
	}
	return text
}

func wantOutcomes(t *testing.T, b *consumer.Batch, want string) {
	t.Helper()
	if got := outcomes(b); got != want+" " {
		t.Fatalf("verdicts: %q, want %q", got, want)
	}
}

func at(epoch, sequence int64) devicestate.Position {
	return devicestate.Position{Epoch: epoch, Sequence: sequence}
}

func (s Store) wantPosition(t *testing.T, device string, want devicestate.Position) {
	t.Helper()
	if got := s.Position(t, device); got != want {
		t.Fatalf("position of %s: %v, want %v", device, got, want)
	}
}

func (s Store) wantEffects(t *testing.T, device string, want ...devicestate.Position) {
	t.Helper()
	if s.Effects == nil {
		return
	}
	if got := s.Effects(t, device); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("effects of %s: %v, want %v", device, got, want)
	}
}

func testAdvances(t *testing.T, s Store) {
	store := s.Open()
	b := batch(t, consumer.Unknown, 10,
		event("a", 1, 7), event("a", 1, 8), event("b", 1, 1), event("a", 1, 8), event("a", 1, 12, Skipped("9-10:superseded")),
		event("a", 1, 3), event("a", 2, 1), event("a", 1, 13), event("b", 1, 2))
	process(t, store, b, nil)
	wantOutcomes(t, b, "baseline apply baseline duplicate hole late new_epoch late apply")
	hole := b.Deliveries[4].Verdict
	if hole.Missing != (devicestate.Range{From: 9, To: 11}) || fmt.Sprint(hole.Lost) != "[{11 11}]" {
		t.Fatalf("hole: %+v", hole)
	}
	if b.Confirmed != 19 {
		t.Fatalf("confirmed %d, want 19", b.Confirmed)
	}
	s.wantPosition(t, "a", at(2, 1))
	s.wantPosition(t, "b", at(1, 2))
	s.wantEffects(t, "a", at(1, 7), at(1, 8), at(1, 12), at(2, 1))
	s.wantEffects(t, "b", at(1, 1), at(1, 2))
}

func testHandlerErrorMovesNothing(t *testing.T, s Store) {
	store, failure := s.Open(), errors.New("no")
	process(t, store, batch(t, consumer.Unknown, 0, event("a", 1, 1)), nil)
	b := batch(t, 1, 1, event("a", 1, 2), event("b", 1, 1))
	err := store.Process(t.Context(), b, func(context.Context, []*consumer.Delivery) error { return failure })
	if !errors.Is(err, failure) {
		t.Fatalf("error %v, want the handler's", err)
	}
	s.wantPosition(t, "a", at(1, 1))
	s.wantPosition(t, "b", at(0, 0))
	s.wantEffects(t, "a", at(1, 1))
	s.wantEffects(t, "b")
	process(t, store, b, nil)
	wantOutcomes(t, b, "apply baseline")
}

func testNoStepBack(t *testing.T, s Store) {
	store := s.Open()
	process(t, store, batch(t, consumer.Unknown, 0, event("a", 3, 9)), nil)
	for _, old := range []devicestate.Position{at(3, 9), at(3, 8), at(2, 100), at(1, 1)} {
		var given int
		b := batch(t, 1, 1, event("a", old.Epoch, old.Sequence))
		process(t, store, b, func(context.Context, []*consumer.Delivery) error { given++; return nil })
		if given != 0 || b.Deliveries[0].Verdict.Applies() {
			t.Fatalf("%v was handled after 3.9", old)
		}
		s.wantPosition(t, "a", at(3, 9))
	}
	s.wantEffects(t, "a", at(3, 9))
}

func testEmptyBatch(t *testing.T, s Store) {
	store := s.Open()
	b := &consumer.Batch{Topic: topicName, Next: 5, Confirmed: consumer.Unknown}
	process(t, store, b, nil)
	if b.Confirmed != 5 {
		t.Fatalf("confirmed %d, want 5", b.Confirmed)
	}
}

func resumeOf(t *testing.T, store consumer.Store, committed int64) consumer.Resume {
	t.Helper()
	resume, err := store.Resume(t.Context(), topicName, map[int32]int64{0: committed, 7: consumer.Unknown})
	if err != nil {
		t.Fatal(err)
	}
	if resume[7].Offset != consumer.Unknown || resume[7].Confirmed != consumer.Unknown {
		t.Fatalf("partition of which nothing is known: %+v", resume[7])
	}
	return resume[0]
}

func testResume(t *testing.T, s Store) {
	process(t, s.Open(), batch(t, consumer.Unknown, 10, event("a", 1, 1), event("a", 1, 2)), nil)
	if s.Volatile {
		if got := resumeOf(t, s.Open(), 11); got != (consumer.Resume{Offset: 11, Confirmed: consumer.Unknown}) {
			t.Fatalf("resume: %+v, want where the group stands", got)
		}
		// Another owner may have moved on in between: what follows is no hole.
		later := batch(t, consumer.Unknown, 40, event("a", 1, 9))
		process(t, s.Open(), later, nil)
		wantOutcomes(t, later, "baseline")
		return
	}
	for committed, want := range map[int64]int64{11: 11, 12: 12, 40: 12, consumer.Unknown: 12} {
		got := resumeOf(t, s.Open(), committed)
		if got != (consumer.Resume{Offset: want, Confirmed: 12}) {
			t.Errorf("committed %d, stored 12: resume %+v, want offset %d", committed, got, want)
		}
	}
}

func testForgotten(t *testing.T, s Store) {
	if s.Volatile {
		t.Skip("volatile: it says so in Resume")
	}
	store := s.Open()
	b := batch(t, consumer.Unknown, 0, event("a", 1, 1), event("a", 1, 2))
	process(t, store, b, nil)
	s.Forget(t)
	next := batch(t, b.Confirmed, 2, event("a", 1, 3))
	err := store.Process(t.Context(), next, nil)
	var behind *consumer.BehindError
	if !errors.As(err, &behind) || behind.Confirmed != 2 || behind.Stored != consumer.Unknown {
		t.Fatalf("after everything was removed: %v, want a BehindError", err)
	}
	handled := func(context.Context, []*consumer.Delivery) error { t.Error("handled without positions"); return nil }
	if err := store.Process(t.Context(), next, handled); !errors.As(err, &behind) {
		t.Fatalf("with a handler: %v, want a BehindError", err)
	}
	s.wantPosition(t, "a", at(0, 0))
	if got := resumeOf(t, s.Open(), 2); got.Offset != consumer.Earliest {
		t.Fatalf("resume: %+v, want the earliest offset", got)
	}
}

func testWentBack(t *testing.T, s Store) {
	if s.Snapshot == nil {
		t.Skip("there is no Snapshot")
	}
	store := s.Open()
	first := batch(t, consumer.Unknown, 0, event("a", 1, 1), event("a", 1, 2))
	process(t, store, first, nil)
	restore := s.Snapshot(t)
	second := batch(t, first.Confirmed, 2, event("a", 1, 3))
	process(t, store, second, nil)
	restore(t)
	third := batch(t, second.Confirmed, 3, event("a", 1, 4))
	for _, handle := range []consumer.Handler{nil, func(context.Context, []*consumer.Delivery) error { t.Error("handled"); return nil }} {
		err := store.Process(t.Context(), third, handle)
		var behind *consumer.BehindError
		if !errors.As(err, &behind) || behind.Confirmed != 3 || behind.Stored != 2 {
			t.Fatalf("after an older copy was put in place: %v, want a BehindError from 3 to 2", err)
		}
	}
	again := batch(t, 2, 2, event("a", 1, 3), event("a", 1, 4))
	process(t, store, again, nil)
	wantOutcomes(t, again, "apply apply")
	s.wantEffects(t, "a", at(1, 1), at(1, 2), at(1, 3), at(1, 4))
}

// testTwoOwners has two stores process the same records at once, as a deposed owner and its successor may; cut into batches
// differently, so that one may end in the middle of the other's.
func testTwoOwners(t *testing.T, s Store) {
	first := s.Open()
	second := first
	if !s.Volatile {
		second = s.Open()
	}
	const events = 120
	var wg sync.WaitGroup
	for store, size := range map[consumer.Store]int64{first: 5, second: 7} {
		wg.Go(func() { processAll(t, store, size, events) })
	}
	wg.Wait()
	if s.Volatile { // there is one store, and one key in the map: the other size is still to be seen
		processAll(t, first, 5, events)
	}
	var want []devicestate.Position
	for n := int64(1); n <= events; n++ {
		want = append(want, at(1, n))
	}
	s.wantEffects(t, "a", want...)
	s.wantPosition(t, "a", at(1, events))
}

// processAll is an owner that goes on whatever a competitor does to it.
func processAll(t *testing.T, store consumer.Store, size, events int64) {
	confirmed := consumer.Unknown
	for offset := int64(0); offset < events; offset += size {
		var records []*kgo.Record
		for n := offset + 1; n <= min(offset+size, events); n++ {
			records = append(records, event("a", 1, n))
		}
		b := batch(t, confirmed, offset, records...)
		for store.Process(t.Context(), b, nil) != nil {
			if t.Context().Err() != nil {
				t.Error("interrupted")
				return
			}
		}
		confirmed = b.Confirmed
	}
}

// testLargeBatch is larger than any limit on the arguments of one command.
func testLargeBatch(t *testing.T, s Store) {
	records := make([]*kgo.Record, 0, 5000)
	for i := range 2500 {
		device := fmt.Sprintf("device-%d", i)
		records = append(records, event(device, 1, 1), event(device, 1, 2))
	}
	b := batch(t, consumer.Unknown, 0, records...)
	process(t, s.Open(), b, nil)
	s.wantPosition(t, "device-0", at(1, 2))
	s.wantPosition(t, "device-2499", at(1, 2))
	s.wantEffects(t, "device-2499", at(1, 1), at(1, 2))
}

func testLargestNumbers(t *testing.T, s Store) {
	const largest = 1<<63 - 1
	store := s.Open()
	b := batch(t, consumer.Unknown, 0, event("a", largest-1, largest-2), event("a", largest-1, largest-1), event("a", largest-1, largest),
		event("a", largest-1, largest-1), event("a", largest, 1), event("a", largest-1, largest))
	process(t, store, b, nil)
	wantOutcomes(t, b, "baseline apply apply late new_epoch late")
	s.wantPosition(t, "a", at(largest, 1))
}

func testCancelled(t *testing.T, s Store) {
	store := s.Open()
	ctx, cancel := context.WithCancel(t.Context())
	err := store.Process(ctx, batch(t, consumer.Unknown, 0, event("a", 1, 1)), func(context.Context, []*consumer.Delivery) error {
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want context.Canceled", err)
	}
	s.wantPosition(t, "a", at(0, 0))
	s.wantEffects(t, "a")
}

func testMarkedErrors(t *testing.T, s Store) {
	store, cause := s.Open(), errors.New("cause")
	for name, marked := range map[string]error{"permanent": consumer.Permanent(cause), "outage": consumer.Outage(cause)} {
		err := store.Process(t.Context(), batch(t, consumer.Unknown, 0, event("a", 1, 1)),
			func(context.Context, []*consumer.Delivery) error { return marked })
		if !errors.Is(err, marked) {
			t.Errorf("%s: %v does not hold the handler's error", name, err)
		}
	}
}

// testConfirmed: a member that was set back by its group's offsets reads again what the store holds already.
func testConfirmed(t *testing.T, s Store) {
	store := s.Open()
	first := batch(t, consumer.Unknown, 0, event("a", 1, 1), event("a", 1, 2), event("a", 1, 3))
	process(t, store, first, nil)
	again := batch(t, first.Confirmed, 0, event("a", 1, 1), event("a", 1, 2))
	process(t, store, again, nil)
	wantOutcomes(t, again, "late late")
	if again.Confirmed != 3 {
		t.Fatalf("confirmed %d, want 3: the offset went back", again.Confirmed)
	}
	s.wantEffects(t, "a", at(1, 1), at(1, 2), at(1, 3))
}
