package consumer

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hubstate/hubstate/devicestate"
)

// holeRecord is what the script keeps of d if there is a hole before it: the script puts the last seen position in front.
func (s *RedisStore) holeRecord(d *Delivery) string {
	if s.limit == 0 {
		return ""
	}
	return strings.Join([]string{
		formatPosition(d.Position()), d.Event.Device, d.Event.Stream, d.Event.Hub, strconv.Itoa(int(d.Partition)),
		strconv.FormatInt(d.Offset, 10), d.Event.ReceivedAt.UTC().Format(time.RFC3339Nano), strconv.FormatBool(d.Compacted),
		d.Header("ce_skipped"),
	}, "\x00")
}

// Holes returns the recorded holes, newest first, at most RedisConfig.HoleLimit. A hole is recorded by the script that
// moves the position over it: exactly once, whatever dies when.
func (s *RedisStore) Holes(ctx context.Context) ([]Hole, error) {
	records, err := s.client.LRange(ctx, s.holes, 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read holes from redis: %w", err)
	}
	holes := make([]Hole, 0, len(records))
	for _, record := range records {
		hole, err := parseHole(record)
		if err != nil {
			return nil, err
		}
		holes = append(holes, hole)
	}
	return holes, nil
}

func parseHole(record string) (Hole, error) {
	parts := strings.Split(record, "\x00")
	if len(parts) != 9 || len(parts[0]) != 2*positionSize {
		return Hole{}, fmt.Errorf("read holes from redis: a record of %d parts", len(parts))
	}
	last, at := parsePosition(parts[0][:positionSize]), parsePosition(parts[0][positionSize:])
	partition, errPartition := strconv.ParseInt(parts[4], 10, 32)
	offset, errOffset := strconv.ParseInt(parts[5], 10, 64)
	received, errTime := time.Parse(time.RFC3339Nano, parts[6])
	for _, err := range []error{errPartition, errOffset, errTime} {
		if err != nil {
			return Hole{}, fmt.Errorf("read holes from redis: %w", err)
		}
	}
	skips, _ := devicestate.ParseSkips(parts[8]) // as in decode: unreadable explains nothing
	compacted := parts[7] == "true"
	verdict := last.Check(at, skips)
	if compacted {
		verdict.Lost = nil
	}
	return Hole{
		Device: parts[1], Stream: parts[2], Hub: parts[3], Epoch: at.Epoch, Missing: verdict.Missing, Lost: verdict.Lost,
		Skips: skips, Compacted: compacted, ReceivedAt: received, Partition: int32(partition), Offset: offset,
	}, nil
}
