package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// environment is what every daemon is told; config holds further keys as they stand in a configuration file.
func (d *daemons) environment(instance, admin string, config map[string]string) []string {
	env := append(slices.Clone(d.opts.Env),
		"HUBSTATE_DATABASE_URL="+d.in.Database,
		"HUBSTATE_MQTT_URL="+d.in.MQTT,
		"HUBSTATE_KAFKA_BROKERS="+strings.Join(d.in.Kafka, ","),
		"HUBSTATE_KAFKA_TOPIC="+d.in.Topic,
		"HUBSTATE_REDIS_URL="+d.in.Redis,
		"HUBSTATE_INSTANCE="+instance,
		"HUBSTATE_ADMIN_ADDR="+admin,
	)
	for key, value := range config {
		env = append(env, "HUBSTATE_"+strings.ToUpper(key)+"="+value)
	}
	return env
}

// migrate lets the product make topic and schema, told what the relays are told: an interval of partitions must hold from
// the first one.
func (d *daemons) migrate(ctx context.Context) error {
	path, err := findBinary(d.opts.Bin, Relay)
	if err != nil {
		return err
	}
	args := []string{"migrate"}
	if n := d.opts.Parts.Buckets; n > 0 {
		args = append(args, fmt.Sprintf("--buckets=%d", n))
	}
	if n := d.opts.Parts.Partitions; n > 0 {
		args = append(args, fmt.Sprintf("--topic-partitions=%d", n))
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), d.environment("migrate", "127.0.0.1:0", d.opts.Parts.RelayConfig)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("relay migrate: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// sessions writes the configuration of the i-th ingester: one session for each of its hubs, which are dealt out.
func (d *daemons) sessions(i int) (string, error) {
	var text strings.Builder
	text.WriteString("sessions:\n")
	for hub := i + 1; hub <= d.opts.Hubs; hub += d.opts.Parts.Ingest {
		fmt.Fprintf(&text, "  - lane: lane-%d\n    hub: hub-%d\n    filters: [\"hubs/hub-%d/#\"]\n", hub, hub, hub)
	}
	path := filepath.Join(d.in.dir, fmt.Sprintf("ingest-%d.yaml", i+1))
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		return "", fmt.Errorf("write the sessions: %w", err)
	}
	return path, nil
}
