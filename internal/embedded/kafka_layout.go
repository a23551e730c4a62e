package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaNode is one broker-and-controller of a cluster on this machine.
type kafkaNode struct {
	id, port   int
	controller int
	dir        string
	properties string
}

func (n kafkaNode) data() string { return filepath.Join(n.dir, "data") }

// kafkaLayout is the cluster before it runs. Its ports are kept in the directory: the quorum's addresses are part of
// what each node believes.
type kafkaLayout struct{ nodes []kafkaNode }

func (l kafkaLayout) brokers() []string {
	addrs := make([]string, len(l.nodes))
	for i, node := range l.nodes {
		addrs[i] = loopback(node.port)
	}
	return addrs
}

func planKafka(dir string, opts KafkaOptions) (kafkaLayout, error) {
	count := max(opts.Nodes, 1)
	if len(opts.Ports) != 0 && len(opts.Ports) != count {
		return kafkaLayout{}, fmt.Errorf("Ports: %d given for %d nodes", len(opts.Ports), count)
	}
	ports, err := keptPorts(filepath.Join(dir, "ports.json"), 2*count)
	if err != nil {
		return kafkaLayout{}, err
	}
	copy(ports, opts.Ports)
	base, err := readConfig("", "kafka/server.properties")
	if err != nil {
		return kafkaLayout{}, err
	}
	var layout kafkaLayout
	for i := range count {
		node := kafkaNode{id: i + 1, port: ports[i], controller: ports[count+i], dir: filepath.Join(dir, fmt.Sprintf("node%d", i+1))}
		layout.nodes = append(layout.nodes, node)
	}
	for i := range layout.nodes {
		layout.nodes[i].properties = string(base) + layout.machineProperties(i, opts.Settings)
	}
	return layout, nil
}

// machineProperties is what deploy/kafka/server.properties leaves to the machine. Of a name given twice Kafka takes the
// last, so these stand behind the file, and the caller's behind these.
func (l kafkaLayout) machineProperties(i int, settings map[string]string) string {
	node := l.nodes[i]
	voters := make([]string, len(l.nodes))
	for j, n := range l.nodes {
		voters[j] = fmt.Sprintf("%d@%s", n.id, loopback(n.controller))
	}
	lines := []string{
		"", "# of this machine",
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", node.id),
		fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://%s", loopback(node.port), loopback(node.controller)),
		"advertised.listeners=PLAINTEXT://" + loopback(node.port),
		"controller.listener.names=CONTROLLER",
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"log.dirs=" + node.data(),
		"group.initial.rebalance.delay.ms=0",
	}
	if len(l.nodes) < 3 {
		lines = append(lines, "default.replication.factor=1", "min.insync.replicas=1", "offsets.topic.replication.factor=1",
			"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
			"share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1")
	}
	for _, name := range sortedKeys(settings) {
		lines = append(lines, name+"="+settings[name])
	}
	return strings.Join(lines, "\n") + "\n"
}

// keptPorts reads the ports chosen when the directory was new, or chooses them.
func keptPorts(path string, count int) ([]int, error) {
	var ports []int
	text, err := os.ReadFile(path)
	if err == nil {
		if err := json.Unmarshal(text, &ports); err != nil || len(ports) != count {
			return nil, fmt.Errorf("%s does not fit a cluster of %d nodes", path, count/2)
		}
		return ports, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for range count {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	text, err = json.Marshal(ports)
	if err != nil {
		return nil, err
	}
	return ports, os.WriteFile(path, text, 0o600)
}

// kafkaReady asks one node for its view of the cluster: it answers before it has met the others.
func kafkaReady(port, nodes int) func(context.Context) error {
	dial := dialReady(port)
	return func(ctx context.Context) error {
		if err := dial(ctx); err != nil {
			return err
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(loopback(port)))
		if err != nil {
			return err
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		meta, err := kadm.NewClient(client).BrokerMetadata(ctx)
		if err != nil {
			return err
		}
		if len(meta.Brokers) < nodes || meta.Controller < 0 {
			return fmt.Errorf("it knows %d of %d nodes", len(meta.Brokers), nodes)
		}
		return nil
	}
}
