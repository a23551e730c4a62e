package consumer

import (
	"context"
	"sync"

	"github.com/hubstate/hubstate/devicestate"
)

// MemoryStore keeps positions in this process: for tests, tools and handlers that tolerate repetition. It forgets a
// partition when it is assigned anew (another member may have moved on in between), so the first event of each stream
// is a baseline then. The zero value is ready.
type MemoryStore struct {
	mu         sync.Mutex
	partitions map[partitionKey]*memoryPartition
}

type partitionKey struct {
	topic     string
	partition int32
}

type memoryPartition struct {
	mu        sync.Mutex // held while a batch is handled: a slow former owner cannot interleave with the next
	positions map[StreamKey]devicestate.Position
	next      int64
}

// NewMemoryStore returns an empty store.
func NewMemoryStore() *MemoryStore { return &MemoryStore{} }

// Resume implements Store: it forgets the partitions and goes on where the group stands.
func (s *MemoryStore) Resume(_ context.Context, topic string, committed map[int32]int64) (map[int32]Resume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resume := make(map[int32]Resume, len(committed))
	for partition, offset := range committed {
		delete(s.partitions, partitionKey{topic, partition})
		resume[partition] = Resume{Offset: offset, Confirmed: Unknown}
	}
	return resume, nil
}

// Process implements Store.
func (s *MemoryStore) Process(ctx context.Context, b *Batch, handle Handler) error {
	p := s.partition(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := b.Streams()
	stored := make([]devicestate.Position, len(keys))
	for i, key := range keys {
		stored[i] = p.positions[key]
	}
	moved := b.Gate(stored)
	if err := b.handleAccepted(ctx, handle); err != nil {
		return err
	}
	for i, key := range keys {
		p.positions[key] = moved[i]
	}
	p.next = max(p.next, b.Next)
	b.Confirmed = p.next
	return nil
}

func (s *MemoryStore) partition(b *Batch) *memoryPartition {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := partitionKey{b.Topic, b.Partition}
	p, ok := s.partitions[key]
	if !ok {
		if s.partitions == nil {
			s.partitions = map[partitionKey]*memoryPartition{}
		}
		p = &memoryPartition{positions: map[StreamKey]devicestate.Position{}}
		s.partitions[key] = p
	}
	return p
}

// Position returns the last (epoch, sequence) seen of a stream; zero when none.
func (s *MemoryStore) Position(device, stream string) devicestate.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last devicestate.Position
	for _, p := range s.partitions {
		p.mu.Lock()
		if at := p.positions[StreamKey{device, stream}]; last.Less(at) {
			last = at
		}
		p.mu.Unlock()
	}
	return last
}
