package main

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/spf13/pflag"
)

// config is what a hub reads; see docs/cli.md.
type config struct {
	DatabaseURL  string   `koanf:"database_url" help:"PostgreSQL, a URL with the rights of its owner; empty: started here" secret:"true"`
	MQTTURL      string   `koanf:"mqtt_url" help:"MQTT broker; empty: started here"`
	KafkaBrokers []string `koanf:"kafka_brokers" help:"Kafka seed brokers, comma list of host:port; empty: started here"`
	RedisURL     string   `koanf:"redis_url" help:"Redis of the monitor's view; empty: started here" secret:"true"`
	Real         bool     `koanf:"real" help:"start the real Mosquitto, Kafka and Redis of this machine (make setup installs them)"`

	DataDir    string        `koanf:"data_dir" help:"where the servers started here keep their data"`
	Ephemeral  bool          `koanf:"ephemeral" help:"keep nothing: a temporary data directory, removed at the end"`
	KafkaTopic string        `koanf:"kafka_topic" help:"topic of the events; fixed once the database has recorded it"`
	PageAddr   string        `koanf:"page_addr" help:"address of the page, host:port"`
	PageToken  string        `koanf:"page_token" help:"token the page asks for; required when page_addr is not loopback" secret:"true"`
	AdminAddr  string        `koanf:"admin_addr" help:"address of /metrics, /healthz and /readyz"`
	Instance   string        `koanf:"instance" help:"name of this hub's ingester and relays"`
	Devices    int           `koanf:"devices" help:"simulated devices, 0..5000; 0: none"`
	Every      time.Duration `koanf:"every" help:"a simulated device reports this often"`
	LogLevel   string        `koanf:"log_level" help:"debug, info, warn or error"`
	LogFormat  string        `koanf:"log_format" help:"text or json"`
}

func defaultConfig() *config {
	return &config{
		DataDir: defaultDataDir(), KafkaTopic: "device-state", PageAddr: "127.0.0.1:8480", AdminAddr: "127.0.0.1:9100",
		Instance: "hub", Devices: 60, Every: time.Second, LogLevel: "warn", LogFormat: "text",
	}
}

// defaultDataDir is the XDG data directory; for root a place that user postgres can enter, which root's home is not.
func defaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/hubstate"
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "hubstate")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "hubstate-data"
	}
	return filepath.Join(home, ".local", "share", "hubstate")
}

func (c *config) load(flags *pflag.FlagSet) error {
	if err := ops.Load(flags, c); err != nil {
		return err
	}
	return c.validate()
}

// validate checks what is the hub's own; its parts check theirs.
func (c *config) validate() error {
	var p ops.Problems
	p.Require("instance", c.Instance)
	p.Require("kafka_topic", c.KafkaTopic)
	p.HostPort("page_addr", c.PageAddr)
	if c.AdminAddr != "" {
		p.HostPort("admin_addr", c.AdminAddr)
	}
	if c.DataDir == "" && !c.Ephemeral {
		p.Require("data_dir", "")
	}
	if c.Devices < 0 || c.Devices > 5000 {
		p.Add("devices", c.Devices, "must be between 0 and 5000")
	}
	if c.Every < 10*time.Millisecond || c.Every > time.Minute {
		p.Add("every", c.Every, "must be between 10ms and 1m")
	}
	p.OneOf("log_level", c.LogLevel, "debug", "info", "warn", "error")
	p.OneOf("log_format", c.LogFormat, "text", "json")
	return p.Err()
}

// openDataDir makes the data directory. Real and embedded servers keep theirs apart: what a database published to one
// Kafka, it has not published to the other. remove deletes an ephemeral one.
func (c *config) openDataDir() (dir string, remove func() error, err error) {
	kind := "embedded"
	if c.Real {
		kind = "real"
	}
	if !c.Ephemeral {
		dir = filepath.Join(c.DataDir, kind)
		return dir, func() error { return nil }, makeEnterable(dir)
	}
	dir, err = os.MkdirTemp("", "hubstate-")
	return dir, func() error { return os.RemoveAll(dir) }, errors.Join(err, makeEnterable(dir))
}

// makeEnterable lets user postgres pass to its part of the directory when we are root; it can list nothing.
func makeEnterable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return errors.Join(os.Chmod(filepath.Dir(dir), passable(filepath.Dir(dir))), os.Chmod(dir, 0o711))
}

// passable is the mode of a directory with the right to pass added for all.
func passable(dir string) os.FileMode {
	info, err := os.Stat(dir)
	if err != nil {
		return 0o711
	}
	return info.Mode() | 0o111
}
