package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hubstate/hubstate/loadtest/rig"
)

// topicName is what a fault is on that concerns the topic itself.
const topicName = "topic"

// What can be done to the topic.
const (
	doRepeat = "repeat" // its newest records are produced once more
	doNarrow = "narrow" // for a while it takes batches of narrowBytes at most: whole groups are refused, single rows are not
)

// narrowBytes is more than one record of the fleet and less than a group under load.
const narrowBytes = "4096"

func validateTopicFault(f rig.Fault) error {
	if f.Do != doRepeat && f.Do != doNarrow {
		return fmt.Errorf("fault at %s: do: %q is none of %s, %s on %s", f.At, f.Do, doRepeat, doNarrow, topicName)
	}
	return nil
}

// troubleTopic carries out the faults on the topic, one after the other.
func (b *bench) troubleTopic(ctx context.Context, start time.Time) error {
	return b.atFaults(ctx, start, topicName, func(f rig.Fault) error {
		trouble := repeatNewest
		if f.Do == doNarrow {
			trouble = func(ctx context.Context, in *rig.Installation) error { return narrow(ctx, in, f.For) }
		}
		if err := trouble(ctx, b.in); err != nil {
			return fmt.Errorf("%s on the topic: %w", f.Do, err)
		}
		return nil
	})
}

// narrow lowers the topic's limit and takes the change back.
func narrow(ctx context.Context, in *rig.Installation, span time.Duration) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(in.Kafka...))
	if err != nil {
		return err
	}
	defer client.Close()
	limit := func(ctx context.Context, change kadm.AlterConfig) error {
		responses, err := kadm.NewClient(client).AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, in.Topic)
		if err != nil {
			return err
		}
		_, err = responses.On(in.Topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
		return err
	}
	bytes := narrowBytes
	if err := limit(ctx, kadm.AlterConfig{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &bytes}); err != nil {
		return err
	}
	select {
	case <-time.After(span):
	case <-ctx.Done(): // the limit is taken back all the same
	}
	return limit(context.WithoutCancel(ctx), kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "max.message.bytes"})
}
