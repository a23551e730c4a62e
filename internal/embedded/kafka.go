package embedded

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// KafkaVersion is the Apache Kafka that `make setup` fetches and StartKafka runs.
const KafkaVersion = "4.4.0"

// kafkaClusterID is 16 bytes in base64url; one name for all, since no two of these clusters ever meet.
const kafkaClusterID = "aHVic3RhdGUtbG9jYWwxMg"

//go:embed log4j2.yaml
var log4j2 []byte

// KafkaOptions says how StartKafka runs.
type KafkaOptions struct {
	// Dir holds a directory per node; made when missing, kept at Stop. Required.
	Dir string
	// Nodes is 1 or 3, each broker and controller in one; 0 is 1.
	Nodes int
	// Ports on 127.0.0.1, one per node; empty: free ones. The controllers' ports are always free ones, chosen when Dir
	// is new and kept in it.
	Ports []int
	// Settings go over deploy/kafka/server.properties.
	Settings map[string]string
}

// Kafka is a running Apache Kafka cluster (KRaft) on loopback.
type Kafka struct {
	nodes   []*Process
	brokers []string
	lock    *dirLock
}

// StartKafka starts Apache Kafka from the jars that `make setup` put into the cache, and returns when every node knows
// all nodes. One node takes about 4 s and 400 MB, three about 8 s and 300 MB each.
func StartKafka(ctx context.Context, opts KafkaOptions) (*Kafka, error) {
	install, err := findKafka()
	if err != nil {
		return nil, err
	}
	dir, lock, err := claimDir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("start Kafka: %w", err)
	}
	k := &Kafka{lock: lock}
	if err := k.start(ctx, install, dir, opts); err != nil {
		return nil, errors.Join(fmt.Errorf("start Kafka: %w", err), k.Stop(context.WithoutCancel(ctx)))
	}
	return k, nil
}

// Brokers are the addresses of all nodes, host:port.
func (k *Kafka) Brokers() []string { return append([]string(nil), k.brokers...) }

// Node is the process of the i-th node, counted from 0; its node.id is i+1.
func (k *Kafka) Node(i int) *Process { return k.nodes[i] }

// Nodes is the number of nodes.
func (k *Kafka) Nodes() int { return len(k.nodes) }

// Stop stops all nodes at the same time. A node that finds no quorum for its controlled shutdown any more is killed
// after 15 s; acknowledged records are in its log all the same.
func (k *Kafka) Stop(ctx context.Context) error {
	var group errgroup.Group
	for _, node := range k.nodes {
		if node != nil {
			group.Go(func() error { return node.Stop(ctx) })
		}
	}
	return errors.Join(group.Wait(), k.lock.release())
}

func (k *Kafka) start(ctx context.Context, install kafkaInstall, dir string, opts KafkaOptions) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	layout, err := planKafka(dir, opts)
	if err != nil {
		return err
	}
	k.nodes = make([]*Process, len(layout.nodes))
	k.brokers = layout.brokers()
	group, ctx := errgroup.WithContext(ctx)
	for i, node := range layout.nodes {
		group.Go(func() (err error) {
			k.nodes[i], err = install.startNode(ctx, node, len(layout.nodes))
			return err
		})
	}
	return group.Wait()
}

// kafkaInstall is where Java and Kafka's jars are.
type kafkaInstall struct{ java, jars string }

func findKafka() (kafkaInstall, error) {
	java, err := findProgram("java", "openjdk-17-jre-headless")
	if err != nil {
		return kafkaInstall{}, err
	}
	cache, err := CacheDir()
	if err != nil {
		return kafkaInstall{}, err
	}
	jars := filepath.Join(cache, "kafka", KafkaVersion)
	if found, _ := filepath.Glob(filepath.Join(jars, "kafka_*.jar")); len(found) == 0 {
		return kafkaInstall{}, fmt.Errorf("Apache Kafka %s is not in %s: run `make setup`", KafkaVersion, jars)
	}
	return kafkaInstall{java: java, jars: jars}, nil
}

func (in kafkaInstall) startNode(ctx context.Context, node kafkaNode, nodes int) (*Process, error) {
	properties := filepath.Join(node.dir, "server.properties")
	logging := filepath.Join(node.dir, "log4j2.yaml")
	err := errors.Join(
		os.MkdirAll(node.dir, 0o700),
		os.WriteFile(properties, []byte(node.properties), 0o600),
		os.WriteFile(logging, log4j2, 0o600),
	)
	if err != nil {
		return nil, err
	}
	classpath := append(in.archive(), "-cp", filepath.Join(in.jars, "*"), "-Dlog4j2.configurationFile=file:"+logging)
	if err := in.format(ctx, node, classpath, properties); err != nil {
		return nil, err
	}
	args := append(javaOptions(nodes), classpath...)
	return startProcess(ctx, program{
		name: "Kafka node " + strconv.Itoa(node.id), path: in.java, args: append(args, "kafka.Kafka", properties),
		logPath: filepath.Join(node.dir, "kafka.log"), stop: syscall.SIGTERM, ready: kafkaReady(node.port, nodes),
	})
}

// archive is the option for the class archive that `make setup` made. Java ignores one that does not fit.
func (in kafkaInstall) archive() []string {
	path := filepath.Join(in.jars, "kafka.jsa")
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return []string{"-XX:SharedArchiveFile=" + path}
}

// javaOptions gives one node room to run at speed; three share one small machine.
func javaOptions(nodes int) []string {
	if nodes == 1 {
		return []string{"-Xms256m", "-Xmx512m", "-XX:+UseSerialGC"}
	}
	return []string{"-Xms128m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
}

// format makes a node's data directory on first use.
func (in kafkaInstall) format(ctx context.Context, node kafkaNode, classpath []string, properties string) error {
	if _, err := os.Stat(filepath.Join(node.data(), "meta.properties")); err == nil {
		return nil
	}
	args := append([]string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}, classpath...)
	args = append(args, "kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", kafkaClusterID, "-c", properties)
	cmd := exec.CommandContext(ctx, in.java, args...)
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format node %d: %w: %s", node.id, err, strings.TrimSpace(string(out)))
	}
	return nil
}
