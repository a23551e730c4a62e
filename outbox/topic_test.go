package outbox_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/deploy"
	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/hubstate/hubstate/outbox"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestTopicSettings_AreThoseOfDeploy: `relay migrate` and an operator with kafka-topics.sh make the same topic.
func TestTopicSettings_AreThoseOfDeploy(t *testing.T) {
	t.Parallel()
	text, err := deploy.Files.ReadFile("kafka/topic.properties")
	if err != nil {
		t.Fatal(err)
	}
	if want, got := embedded.Properties(text), outbox.TopicSettings(3); !maps.Equal(want, got) {
		t.Errorf("deploy/kafka/topic.properties %v\nTopicSettings(3)               %v", want, got)
	}
}

// TestEnsureTopic_MakesFindsAndNotices runs on a fake and on a real Kafka: made once, found again unchanged, and a topic
// that was deleted and made again, or altered, is noticed.
func TestEnsureTopic_MakesFindsAndNotices(t *testing.T) {
	t.Parallel()
	for name, brokers := range map[string]func() []string{
		"fake": func() []string { return testenv.FakeKafka(t).ListenAddrs() },
		"real": func() []string { return testenv.Kafka(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := topicClient(t, brokers())
			admin := kadm.NewClient(client)
			spec := outbox.TopicSpec{Name: fmt.Sprintf("ensure-%d", os.Getpid()), Partitions: 8}
			made := ensure(t, client, spec)
			t.Cleanup(func() { _, _ = admin.DeleteTopic(context.WithoutCancel(t.Context()), spec.Name) })
			if !made.Created || made.Partitions != 8 || made.MaxMessageBytes != 1048588 || made.CleanupPolicy != "delete" || made.MinInsync != 1 {
				t.Errorf("made %+v", made)
			}
			if made.ID == [16]byte{} || len(made.Warnings) != 1 || !strings.Contains(made.Warnings[0], "replication is 1") {
				t.Errorf("made %+v", made)
			}
			found := ensure(t, client, spec)
			if changes := found.Changes(made); found.Created || changes != nil {
				t.Errorf("found %+v, changes %v", found, changes)
			}

			compact := "compact"
			if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "cleanup.policy", Value: &compact}}, spec.Name); err != nil {
				t.Fatal(err)
			}
			expectChange(t, client, spec, found, "cleanup.policy changed from delete to compact")

			if _, err := admin.DeleteTopic(t.Context(), spec.Name); err != nil {
				t.Fatal(err)
			}
			expectChange(t, client, spec, found, "deleted and made again")
		})
	}
}

func ensure(t *testing.T, client *kgo.Client, spec outbox.TopicSpec) outbox.TopicFacts {
	t.Helper()
	facts, err := outbox.EnsureTopic(t.Context(), client, spec)
	for deadline := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(deadline); {
		facts, err = outbox.EnsureTopic(t.Context(), client, spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// expectChange looks again until the brokers agree on what was done.
func expectChange(t *testing.T, client *kgo.Client, spec outbox.TopicSpec, before outbox.TopicFacts, want string) {
	t.Helper()
	var changes []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		changes = ensure(t, client, spec).Changes(before)
		if strings.Contains(strings.Join(changes, "\n"), want) {
			return
		}
	}
	t.Errorf("%q is not among the changes %q", want, changes)
}

func topicClient(t *testing.T, brokers []string) *kgo.Client {
	t.Helper()
	opts, err := outbox.KafkaConfig{Brokers: brokers}.Options()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
