package subject

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hubstate/hubstate/loadtest/oracle"
)

// Seen is what the consumer did and what its store remembers. The store is read as it lies in Redis, not through the
// library that wrote it. Call it after Run has ended, or when nothing flows any more.
func (s *Subject) Seen(ctx context.Context) (oracle.Consumer, error) {
	s.mu.Lock()
	seen := oracle.Consumer{Effects: slices.Clone(s.effects)}
	s.mu.Unlock()
	if seen.Effects == nil {
		seen.Effects = []oracle.Effect{} // it looked, and saw nothing
	}
	positions, err := s.redis.HGetAll(ctx, "{"+s.group+"}:positions").Result()
	if err != nil {
		return seen, fmt.Errorf("read the consumer's store: %w", err)
	}
	seen.Positions = map[int]oracle.PositionSeen{}
	for field, text := range positions {
		device, stream, ok := strings.Cut(field, "\x00")
		if i := s.book.Find(device, stream); ok && i >= 0 {
			seen.Positions[i] = parsePosition(text)
		}
	}
	return seen, s.readCounts(ctx, &seen)
}

func (s *Subject) readCounts(ctx context.Context, seen *oracle.Consumer) error {
	counts, err := s.redis.HGetAll(ctx, s.effectsKey()).Result()
	if err != nil {
		return fmt.Errorf("read the consumer's effects: %w", err)
	}
	seen.Counts = map[int]int64{}
	for field, text := range counts {
		stream, err := strconv.Atoi(field)
		n, errCount := strconv.ParseInt(text, 10, 64)
		if err != nil || errCount != nil || stream < 0 || stream >= len(s.book.Streams) {
			return fmt.Errorf("read the consumer's effects: stream %q has %q", field, text)
		}
		seen.Counts[stream] = n
	}
	return nil
}

// parsePosition reads "epoch.sequence", both padded with zeros.
func parsePosition(text string) (p oracle.PositionSeen) {
	epoch, sequence, _ := strings.Cut(text, ".")
	p.Epoch, _ = strconv.ParseInt(epoch, 10, 64)
	p.Sequence, _ = strconv.ParseInt(sequence, 10, 64)
	return p // what cannot be read is zero, and no stream ends there
}
