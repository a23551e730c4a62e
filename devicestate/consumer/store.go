package consumer

import (
	"context"
	"fmt"

	"github.com/hubstate/hubstate/devicestate"
)

// Store keeps the positions of one consumer (name) and moves them together with the effect. Its methods are safe for
// concurrent use with different partitions. consumertest.TestStore shows whether an implementation keeps its promises.
type Store interface {
	// Resume says where to begin with partitions that were just assigned, given the group's committed offsets (Unknown
	// where there is none).
	Resume(ctx context.Context, topic string, committed map[int32]int64) (map[int32]Resume, error)

	// Process gates the batch, has handle called with what passed (unless handle is nil or nothing did), and moves
	// positions and b.Confirmed, all or nothing. On success every delivery has its verdict. handle may be called although Process then fails, and
	// again by the next try. A *BehindError says that the store has gone back behind b.Confirmed: nothing was done.
	Process(ctx context.Context, b *Batch, handle Handler) error
}

// Offsets that are none.
const (
	Unknown  int64 = -1 // nothing is known: Config.Start decides
	Earliest int64 = -2 // the oldest record the topic still has
)

// Resume is where a partition goes on.
type Resume struct {
	Offset    int64 // to read from; may be Unknown or Earliest
	Confirmed int64 // the offset the store holds; Unknown when it holds none, or is not durable
}

// Batch is what is processed in one go: consecutive records of one partition, in order.
type Batch struct {
	Topic      string
	Partition  int32
	Next       int64 // the offset after the batch, poison and tombstones included
	Deliveries []*Delivery

	// Confirmed is the offset up to which the store confirmed the partition to this consumer before; Unknown = never.
	// Process sets it to what the store holds afterwards.
	Confirmed int64

	streams []StreamKey
	of      []int // stream of each delivery

	uncertain *commitAttempt // of PostgresStore
	token     string         // of RedisStore: the same in each attempt
}

// StreamKey names one sequence.
type StreamKey struct{ Device, Stream string }

// Streams returns the distinct streams of the batch, in order of first appearance.
func (b *Batch) Streams() []StreamKey {
	if len(b.of) == len(b.Deliveries) {
		return b.streams
	}
	index := make(map[StreamKey]int, len(b.Deliveries))
	b.streams, b.of = make([]StreamKey, 0, len(b.Deliveries)), make([]int, len(b.Deliveries))
	for i, d := range b.Deliveries {
		key := StreamKey{d.Event.Device, d.Event.Stream}
		at, ok := index[key]
		if !ok {
			at = len(b.streams)
			index[key] = at
			b.streams = append(b.streams, key)
		}
		b.of[i] = at
	}
	return b.streams
}

// Gate sets the verdict of each delivery, given the stored position of each of Streams (the zero value where there is
// none), and returns their positions after the batch.
func (b *Batch) Gate(stored []devicestate.Position) []devicestate.Position {
	b.Streams()
	moved := append([]devicestate.Position(nil), stored...)
	for i, d := range b.Deliveries {
		at := &moved[b.of[i]]
		d.Verdict = at.Check(d.Position(), d.Skips)
		if d.Compacted {
			d.Verdict.Lost = nil
		}
		if d.Verdict.Applies() {
			*at = d.Position()
		}
	}
	return moved
}

// Accepted returns the deliveries that are to be handled, in order. Call it after Gate.
func (b *Batch) Accepted() []*Delivery {
	accepted := make([]*Delivery, 0, len(b.Deliveries))
	for _, d := range b.Deliveries {
		if d.handled() {
			accepted = append(accepted, d)
		}
	}
	return accepted
}

// handleAccepted calls handle unless there is nothing for it.
func (b *Batch) handleAccepted(ctx context.Context, handle Handler) error {
	if handle == nil {
		return nil
	}
	if accepted := b.Accepted(); len(accepted) > 0 {
		return handle(ctx, accepted)
	}
	return nil
}

// BehindError says that a store has lost what it had confirmed: it was flushed, restored from an older copy, or failed
// over to a replica that lagged.
type BehindError struct {
	Confirmed int64 // what it had confirmed
	Stored    int64 // what it holds now; Unknown when nothing
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("the position store went back: it confirmed offset %d and holds %d", e.Confirmed, e.Stored)
}

// behind compares what a store confirmed with what it holds.
func behind(confirmed, stored int64) error {
	if confirmed >= 0 && stored < confirmed {
		return &BehindError{Confirmed: confirmed, Stored: stored}
	}
	return nil
}

// resumeAt is the rule of durable stores. The lower of both offsets is safe: what is read again is dropped by the gate,
// and an operator can make the group read again by setting its offsets back. A store that holds nothing although the
// group has committed was lost, or is new to this group: it is rebuilt from what the topic still has.
func resumeAt(committed, stored int64) Resume {
	switch {
	case stored == Unknown && committed != Unknown:
		return Resume{Offset: Earliest, Confirmed: Unknown}
	case stored == Unknown || committed == Unknown:
		return Resume{Offset: stored, Confirmed: stored}
	}
	return Resume{Offset: min(committed, stored), Confirmed: stored}
}
