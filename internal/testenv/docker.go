package testenv

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hubstate/hubstate/deploy"
	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Images, by the versions the documentation names.
const (
	postgresImage  = "postgres:18"
	mosquittoImage = "eclipse-mosquitto:2"
	redisImage     = "redis:7"
	kafkaImage     = "apache/kafka:" + embedded.KafkaVersion
)

// dockerAnswers tells whether a Docker daemon is there. The socket is tried first, because looking for a daemon the
// long way costs seconds on a machine that has none. HUBSTATE_TEST_DOCKER=off passes it by.
var dockerAnswers = sync.OnceValue(func() bool {
	if os.Getenv("HUBSTATE_TEST_DOCKER") == "off" || !dockerSocketOpen() {
		return false
	}
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return false
	}
	defer func() { _ = provider.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return provider.Health(ctx) == nil
})

func dockerSocketOpen() bool {
	if os.Getenv("DOCKER_HOST") != "" {
		return true // perhaps TCP; the health check decides
	}
	for _, path := range []string{"/var/run/docker.sock", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "docker.sock")} {
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil { //nolint:noctx // bounded by its time-out
			_ = conn.Close()
			return true
		}
	}
	return false
}

// runContainer starts a container that close removes and returns the host:port that leads to its port.
func runContainer(ctx context.Context, image, port string, opts ...testcontainers.ContainerCustomizer) (string, error) {
	opts = append(opts, testcontainers.WithWaitStrategyAndDeadline(startTimeout, wait.ForListeningPort(port+"/tcp")))
	container, err := testcontainers.Run(ctx, image, opts...)
	if container != nil {
		theEnvironment().onStop(func(ctx context.Context) error { return container.Terminate(ctx) })
	}
	if err != nil {
		return "", fmt.Errorf("start container %s: %w", image, err)
	}
	addr, err := container.PortEndpoint(ctx, port+"/tcp", "")
	if err != nil {
		return "", fmt.Errorf("find the port of container %s: %w", image, err)
	}
	return addr, nil
}

func settingsFile(name, place string) (testcontainers.ContainerFile, error) {
	text, err := deploy.Files.ReadFile(name)
	return testcontainers.ContainerFile{Reader: bytes.NewReader(text), ContainerFilePath: place, FileMode: 0o644}, err
}

// dockerPostgres includes our settings through a script that the image runs once on the new cluster.
func dockerPostgres(ctx context.Context) (string, error) {
	settings, err := settingsFile("postgres/hubstate.conf", "/etc/hubstate.conf")
	if err != nil {
		return "", err
	}
	include := testcontainers.ContainerFile{
		Reader:            strings.NewReader(`echo "include '/etc/hubstate.conf'" >> "$PGDATA/postgresql.conf"` + "\n"),
		ContainerFilePath: "/docker-entrypoint-initdb.d/hubstate.sh", FileMode: 0o755,
	}
	addr, err := runContainer(ctx, postgresImage, "5432",
		testcontainers.WithEnv(map[string]string{"POSTGRES_USER": "hubstate", "POSTGRES_PASSWORD": "hubstate", "POSTGRES_DB": "hubstate"}),
		testcontainers.WithFiles(settings, include),
		testcontainers.WithExposedPorts("5432/tcp"),
		// The first "ready" is of the server that only runs the scripts.
		testcontainers.WithAdditionalWaitStrategy(wait.ForLog("database system is ready to accept connections").WithOccurrence(2)))
	if err != nil {
		return "", err
	}
	took("PostgreSQL", "container "+postgresImage)
	return "postgres://hubstate:hubstate@" + addr + "/hubstate?sslmode=disable", nil
}

func dockerMosquitto(ctx context.Context) (string, error) {
	settings, err := settingsFile("mosquitto/hubstate.conf", "/mosquitto/config/conf.d/hubstate.conf")
	if err != nil {
		return "", err
	}
	main := testcontainers.ContainerFile{
		Reader:            strings.NewReader("listener 1883\nallow_anonymous true\npersistence_location /mosquitto/data/\nlog_dest stdout\ninclude_dir /mosquitto/config/conf.d\n"),
		ContainerFilePath: "/mosquitto/config/mosquitto.conf", FileMode: 0o644,
	}
	addr, err := runContainer(ctx, mosquittoImage, "1883", testcontainers.WithFiles(main, settings), testcontainers.WithExposedPorts("1883/tcp"))
	if err != nil {
		return "", err
	}
	took("MQTT", "container "+mosquittoImage)
	return "mqtt://" + addr, nil
}

func dockerRedis(ctx context.Context) (string, error) {
	addr, err := runContainer(ctx, redisImage, "6379", testcontainers.WithExposedPorts("6379/tcp"),
		testcontainers.WithCmd("redis-server", "--appendonly", "yes", "--databases", strconv.Itoa(redisDatabases)))
	if err != nil {
		return "", err
	}
	took("Redis", "container "+redisImage)
	return "redis://" + addr, nil
}

// dockerKafka publishes the broker's port under a number known beforehand: a Kafka broker tells its clients where to
// connect, so the address must be right before it starts.
func dockerKafka(ctx context.Context) (string, error) {
	port, err := embedded.FreePort()
	if err != nil {
		return "", err
	}
	text, err := deploy.Files.ReadFile("kafka/server.properties")
	if err != nil {
		return "", err
	}
	addr := "127.0.0.1:" + strconv.Itoa(port)
	_, err = runContainer(ctx, kafkaImage, "9092", testcontainers.WithEnv(kafkaEnvironment(text, addr)),
		testcontainers.WithExposedPorts(strconv.Itoa(port)+":9092/tcp"))
	if err != nil {
		return "", err
	}
	took("Kafka", "container "+kafkaImage)
	return addr, nil
}

// kafkaEnvironment writes settings the way Kafka's image reads them: min.insync.replicas is KAFKA_MIN_INSYNC_REPLICAS.
func kafkaEnvironment(properties []byte, addr string) map[string]string {
	settings := embedded.Properties(properties)
	for name, value := range map[string]string{
		"process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@localhost:9093",
		"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "advertised.listeners": "PLAINTEXT://" + addr,
		"controller.listener.names": "CONTROLLER", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"default.replication.factor": "1", "min.insync.replicas": "1", "offsets.topic.replication.factor": "1",
		"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
		"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
		"group.initial.rebalance.delay.ms": "0",
	} {
		settings[name] = value
	}
	env := map[string]string{}
	for name, value := range settings {
		env["KAFKA_"+strings.ToUpper(strings.ReplaceAll(name, ".", "_"))] = value
	}
	return env
}
