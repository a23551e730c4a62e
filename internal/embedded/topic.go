package embedded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// CreateTopic makes a topic with the settings of deploy/kafka/topic.properties, on up to three replicas. With fewer than
// two brokers one replica in sync is all that can be asked for. A topic that exists is left as it is.
func CreateTopic(ctx context.Context, brokers []string, name string, partitions int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	meta, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	settings, err := topicSettings(len(meta.Brokers))
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	_, err = admin.CreateTopic(ctx, int32(partitions), int16(min(len(meta.Brokers), 3)), settings, name)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

func topicSettings(brokers int) (map[string]*string, error) {
	text, err := readConfig("", "kafka/topic.properties")
	if err != nil {
		return nil, err
	}
	settings := map[string]*string{}
	for name, value := range Properties(text) {
		settings[name] = &value
	}
	if brokers < 2 {
		one := "1"
		settings["min.insync.replicas"] = &one
	}
	return settings, nil
}

// Properties reads name=value lines as Kafka writes them: no continuation lines, # starts a comment line.
func Properties(text []byte) map[string]string {
	settings := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		name, value, ok := strings.Cut(line, "=")
		if ok && !strings.HasPrefix(line, "#") {
			settings[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return settings
}
