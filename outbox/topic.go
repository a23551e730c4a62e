package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TopicSpec is the topic as the database has recorded it.
type TopicSpec struct {
	Name        string
	Partitions  int               // never changes: it decides where a device's events lie
	Replication int               // when it is made; default min(3, living brokers)
	Settings    map[string]string // when it is made, over those of TopicSettings
	MustExist   bool              // refuse to make it
}

// TopicFacts is what the cluster says about the topic.
type TopicFacts struct {
	ID              [16]byte // another one = the topic was deleted and made again; zero when the broker is too old for ids
	Created         bool     // by this call
	Partitions      int
	Replication     int // of the partition with the fewest replicas
	MaxMessageBytes int // of a batch; 0 = unknown
	MinInsync       int // 0 = unknown
	CleanupPolicy   string
	Warnings        []string // settings that weaken a promise, each with the way out
}

// PartitionCountError is a topic whose partition count is not the recorded one. Publishing to it would put devices into
// other partitions than their past and break their order (O2).
type PartitionCountError struct {
	Topic      string
	Have, Want int
}

func (e *PartitionCountError) Error() string {
	return fmt.Sprintf("topic %s has %d partitions, the database has recorded %d: devices would move to other partitions and lose their order; "+
		"if nothing was published yet, delete the topic and it is made again with %d; else go on in another one: `relay rebase --new-topic NAME`",
		e.Topic, e.Have, e.Want, e.Want)
}

// TopicSettings are the settings that a topic of replication copies is made with; deploy/kafka/topic.properties explains
// each. A topic that exists is never altered.
func TopicSettings(replication int) map[string]string {
	return map[string]string{
		"cleanup.policy":                  "delete",
		"retention.ms":                    "604800000",
		"min.insync.replicas":             strconv.Itoa(max(1, min(2, replication-1))),
		"unclean.leader.election.enable":  "false",
		"max.message.bytes":               "1048588",
		"compression.type":                "producer",
		"message.timestamp.type":          "CreateTime",
		"message.timestamp.before.max.ms": "9223372036854775807",
	}
}

// EnsureTopic makes the topic when it is missing and reports what it is. A wrong partition count is a
// *PartitionCountError. It costs two requests and is meant to be run again every 30 s: compare the facts with
// TopicFacts.Changes. Right to describe settings lacking: the facts of settings are zero, with a warning.
func EnsureTopic(ctx context.Context, client *kgo.Client, spec TopicSpec) (TopicFacts, error) {
	admin := kadm.NewClient(client)
	facts, err := describeTopic(ctx, admin, spec)
	if errors.Is(err, kerr.UnknownTopicOrPartition) && !spec.MustExist {
		return createTopic(ctx, admin, spec)
	}
	return facts, err
}

// topicAppears bounds the wait for a topic that was just made.
const topicAppears = 10 * time.Second

func createTopic(ctx context.Context, admin *kadm.Client, spec TopicSpec) (TopicFacts, error) {
	replication := spec.Replication
	if replication == 0 {
		brokers, err := admin.BrokerMetadata(ctx)
		if err != nil {
			return TopicFacts{}, fmt.Errorf("create topic %s: %w", spec.Name, err)
		}
		replication = max(1, min(3, len(brokers.Brokers)))
	}
	settings := map[string]*string{}
	for name, value := range merged(TopicSettings(replication), spec.Settings) {
		settings[name] = &value
	}
	_, err := admin.CreateTopic(ctx, int32(spec.Partitions), int16(replication), settings, spec.Name)
	created := !errors.Is(err, kerr.TopicAlreadyExists) // another relay was faster
	if err != nil && created {
		return TopicFacts{}, fmt.Errorf("create topic %s: %w", spec.Name, err)
	}
	facts, err := awaitTopic(ctx, admin, spec)
	facts.Created = created
	return facts, err
}

// awaitTopic looks until the new topic is seen: brokers learn of it one after another, and the client remembers for
// MetadataMinAge that there was none.
func awaitTopic(ctx context.Context, admin *kadm.Client, spec TopicSpec) (TopicFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, topicAppears)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		facts, err := describeTopic(ctx, admin, spec)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return facts, err
		}
		select {
		case <-ctx.Done():
			return facts, err
		case <-again.C:
		}
	}
}

func merged(standard, over map[string]string) map[string]string {
	all := maps.Clone(standard)
	maps.Copy(all, over)
	return all
}

func describeTopic(ctx context.Context, admin *kadm.Client, spec TopicSpec) (TopicFacts, error) {
	topics, err := admin.ListTopics(ctx, spec.Name)
	if err != nil {
		return TopicFacts{}, fmt.Errorf("describe topic %s: %w", spec.Name, err)
	}
	topic, ok := topics[spec.Name]
	if !ok {
		return TopicFacts{}, fmt.Errorf("describe topic %s: %w", spec.Name, kerr.UnknownTopicOrPartition)
	}
	if topic.Err != nil {
		return TopicFacts{}, fmt.Errorf("describe topic %s: %w", spec.Name, topic.Err)
	}
	if len(topic.Partitions) != spec.Partitions {
		return TopicFacts{}, &PartitionCountError{Topic: spec.Name, Have: len(topic.Partitions), Want: spec.Partitions}
	}
	facts := TopicFacts{ID: topic.ID, Partitions: len(topic.Partitions), Replication: fewestReplicas(topic)}
	facts.readSettings(ctx, admin, spec.Name)
	facts.judge()
	return facts, nil
}

func fewestReplicas(topic kadm.TopicDetail) int {
	n := 0
	for _, p := range topic.Partitions {
		if n == 0 || len(p.Replicas) < n {
			n = len(p.Replicas)
		}
	}
	return n
}

func (f *TopicFacts) readSettings(ctx context.Context, admin *kadm.Client, name string) {
	configs, err := admin.DescribeTopicConfigs(ctx, name)
	if err == nil {
		var topic kadm.ResourceConfig
		topic, err = configs.On(name, nil)
		err = errors.Join(err, topic.Err)
		f.takeSettings(topic)
	}
	if err != nil {
		f.warn("the topic's settings cannot be read (%v): grant DESCRIBE_CONFIGS on it", err)
	}
}

func (f *TopicFacts) takeSettings(topic kadm.ResourceConfig) {
	for _, c := range topic.Configs {
		switch value := c.MaybeValue(); c.Key {
		case "max.message.bytes":
			f.MaxMessageBytes, _ = strconv.Atoi(value)
		case "min.insync.replicas":
			f.MinInsync, _ = strconv.Atoi(value)
		case "cleanup.policy":
			f.CleanupPolicy = value
		}
	}
}

func (f *TopicFacts) judge() {
	if strings.Contains(f.CleanupPolicy, "compact") {
		f.warn("cleanup.policy = %s: compaction removes events a consumer has not seen, which it counts as loss; set it to delete", f.CleanupPolicy)
	}
	if f.Replication == 1 {
		f.warn("replication is 1: an acknowledged event lives on one disk; use 3 brokers and 3 replicas")
	}
	if f.Replication > 1 && f.MinInsync == 1 {
		f.warn("min.insync.replicas = 1: acks=all may mean one copy; set it to 2")
	}
	if f.MinInsync > 1 && f.MinInsync >= f.Replication {
		f.warn("min.insync.replicas = %d of %d replicas: one broker away stops publishing", f.MinInsync, f.Replication)
	}
}

func (f *TopicFacts) warn(format string, args ...any) {
	f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...))
}

// Changes says what is different from an earlier look, for an alarm; nil when nothing is. A topic that was made again
// comes first.
func (f TopicFacts) Changes(earlier TopicFacts) []string {
	var changes []string
	if f.ID != earlier.ID {
		changes = append(changes, "the topic was deleted and made again: what it held is gone for consumers that had not read it")
	}
	number := func(name string, was, is int) {
		if was != is {
			changes = append(changes, fmt.Sprintf("%s changed from %d to %d", name, was, is))
		}
	}
	number("replication", earlier.Replication, f.Replication)
	number("max.message.bytes", earlier.MaxMessageBytes, f.MaxMessageBytes)
	number("min.insync.replicas", earlier.MinInsync, f.MinInsync)
	if f.CleanupPolicy != earlier.CleanupPolicy {
		changes = append(changes, fmt.Sprintf("cleanup.policy changed from %s to %s", earlier.CleanupPolicy, f.CleanupPolicy))
	}
	for _, w := range f.Warnings {
		if !slices.Contains(earlier.Warnings, w) {
			changes = append(changes, w)
		}
	}
	return changes
}
