package peers

import (
	"context"
	_ "embed"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hubstate/hubstate/internal/embedded"
)

//go:embed debezium-pom.xml
var debeziumPOM []byte

// debeziumVersion keys the cache.
const debeziumVersion = "3.6.1"

// fetchDebezium brings connector and Connect into the cache, once, and returns the directory of the jars.
func fetchDebezium(ctx context.Context) (string, error) {
	cache, err := embedded.CacheDir()
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "debezium", debeziumVersion)
	lib := filepath.Join(home, "lib")
	if found, _ := filepath.Glob(filepath.Join(lib, "debezium-connector-postgres-*.jar")); len(found) > 0 {
		return lib, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", fmt.Errorf("fetch Debezium: %w", err)
	}
	pom := filepath.Join(home, "pom.xml")
	if err := os.WriteFile(pom, debeziumPOM, 0o644); err != nil {
		return "", fmt.Errorf("fetch Debezium: %w", err)
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DoutputDirectory="+lib, "-DincludeScope=runtime")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch Debezium (needs Maven): %w: %s", err, out)
	}
	return lib, nil
}

// connectSettings are the worker's. Bytes pass through; the producer is idempotent and compresses as the relay does.
const connectSettings = `bootstrap.servers=%s
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
offset.storage.file.filename=%s
offset.flush.interval.ms=1000
listeners=http://127.0.0.1:0
plugin.discovery=hybrid_warn
producer.acks=all
producer.enable.idempotence=true
producer.compression.type=snappy
producer.batch.size=262144
producer.linger.ms=5
producer.max.in.flight.requests.per.connection=5
`

// connectorSettings are the connector's: the slot and publication exist, nothing is snapshotted, large batches.
const connectorSettings = `name=debezium
connector.class=io.debezium.connector.postgresql.PostgresConnector
tasks.max=1
database.hostname=%s
database.port=%s
database.user=%s
database.password=%s
database.dbname=%s
topic.prefix=peer
plugin.name=pgoutput
slot.name=debezium
publication.name=debezium
publication.autocreate.mode=disabled
table.include.list=public.outbox
snapshot.mode=no_data
tombstones.on.delete=false
max.batch.size=8192
max.queue.size=32768
poll.interval.ms=5
slot.retry.delay.ms=500
transforms=outbox
transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
transforms.outbox.table.field.event.id=message_id
transforms.outbox.table.field.event.key=aggregate_id
transforms.outbox.table.field.event.payload=payload
transforms.outbox.route.by.field=aggregate_type
transforms.outbox.route.topic.replacement=%s
transforms.outbox.table.fields.additional.placement=event_type:header:ce_type,stream:header:ce_stream,epoch:header:ce_epoch,sequence:header:ce_sequence,source:header:ce_source,schema_version:header:ce_schemaversion
`

// startConnect starts the worker; it is running, not yet streaming.
func startConnect(jars, dir, database string, brokers []string, topic string) (*child, error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, fmt.Errorf("start Debezium: %w", err)
	}
	password, _ := u.User.Password()
	worker, connector := filepath.Join(dir, "worker.properties"), filepath.Join(dir, "connector.properties")
	offsets := filepath.Join(dir, "debezium.offsets")
	settings := fmt.Sprintf(connectorSettings, u.Hostname(), u.Port(), u.User.Username(), password, strings.Trim(u.Path, "/"), topic)
	if err := os.WriteFile(worker, fmt.Appendf(nil, connectSettings, strings.Join(brokers, ","), offsets), 0o600); err != nil {
		return nil, fmt.Errorf("start Debezium: %w", err)
	}
	if err := os.WriteFile(connector, []byte(settings), 0o600); err != nil {
		return nil, fmt.Errorf("start Debezium: %w", err)
	}
	c, err := startChild(filepath.Join(dir, Debezium+".log"), "java", "-Xms512m", "-Xmx1g", "-cp", filepath.Join(jars, "*"),
		"org.apache.kafka.connect.cli.ConnectStandalone", worker, connector)
	if err != nil {
		return nil, fmt.Errorf("start Debezium: %w", err)
	}
	return c, nil
}
