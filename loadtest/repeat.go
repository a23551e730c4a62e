package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hubstate/hubstate/loadtest/rig"
	"github.com/hubstate/hubstate/loadtest/witness"
)

// repeated is how many of the newest records of each partition are produced again.
const repeated = 50

// repeatNewest produces the newest records of the topic once more, as an owner that was stopped and woke up would.
func repeatNewest(ctx context.Context, in *rig.Installation) error {
	ends, err := witness.EndOffsets(ctx, in.Kafka, in.Topic)
	if err != nil {
		return err
	}
	from, left := map[int32]kgo.Offset{}, 0
	for p, end := range ends {
		if n := min(end, repeated); n > 0 {
			from[p] = kgo.NewOffset().At(end - n)
			left += int(n)
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(in.Kafka...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{in.Topic: from}),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	var again []*kgo.Record
	for len(again) < left {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < ends[r.Partition] {
				again = append(again, &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp})
			}
		})
	}
	return client.ProduceSync(ctx, again...).FirstErr()
}
