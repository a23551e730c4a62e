package monitor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hubstate/hubstate/devicestate"
)

// Config says what a monitor watches and where it serves. Config{} with DefaultConfig's values and a Redis URL works.
type Config struct {
	// KafkaBrokers are the seed brokers, host:port. Required.
	KafkaBrokers []string `koanf:"kafka_brokers" help:"Kafka seed brokers, comma list of host:port"`
	// KafkaTopic holds the events of all cells. Default: device-state.
	KafkaTopic string `koanf:"kafka_topic" help:"Kafka topic of the device state events"`
	// Group is the Kafka consumer group that the instances of one view share. Default: hubstate-monitor.
	Group string `koanf:"group" help:"Kafka consumer group shared by the instances of one view"`
	// RedisURL is where the view lives. Required.
	RedisURL string `koanf:"redis_url" help:"Redis URL of the view, redis://host:port/db"`
	// DatabaseURL is a cell's PostgreSQL, read as hubstate_reader for the backlog. Optional: without it the page cannot
	// see what lies before Kafka, and says so.
	DatabaseURL string `koanf:"database_url" help:"PostgreSQL of the cell, to watch its backlog; optional"`
	// Profiles are the profiles that the ingesters use: names of built-in ones or YAML files. Their streams' expect
	// decides what is silent. Default: all built-in ones, as of ingest.
	Profiles []string `koanf:"profiles" help:"device profiles, the same as of ingest: built-in names or YAML files, comma list"`
	// ExpectedDevices is a file of lines "hub device": those are known, as never seen, before they report. Optional.
	ExpectedDevices string `koanf:"expected_devices" help:"file with the devices that must report, lines of hub and device id; optional"`
	// PageAddr is where the page and its JSON API are served, host:port. Default: 127.0.0.1:8480.
	PageAddr string `koanf:"page_addr" help:"address of the page, host:port"`
	// PageToken must be presented by everybody who looks. Required unless PageAddr is a loopback address.
	PageToken string `koanf:"page_token" help:"token that the page asks for; required unless page_addr is loopback" secret:"true"`
	// PoisonTopic gets records that cannot be decoded. Optional: without it the first one stops the reading, and the page
	// says so. Default: empty.
	PoisonTopic string `koanf:"poison_topic" help:"topic for records that cannot be decoded; empty stops at the first"`
	// Instance names this process in logs. Default: the host's name.
	Instance string `koanf:"instance" help:"name of this instance in logs"`
	// SilentPercent of a hub's devices must be silent for the hub to be called silent, 1..100. Default: 50.
	SilentPercent int `koanf:"silent_percent" help:"share of silent devices that makes a hub silent, percent"`
	// MaxViewers bounds the open pages of this instance, 1..10000. Default: 200.
	MaxViewers int `koanf:"max_viewers" help:"open pages at most"`
}

// DefaultConfig holds every default.
func DefaultConfig() Config {
	host, err := os.Hostname()
	if err != nil {
		host = "monitor"
	}
	return Config{
		KafkaTopic: "device-state", Group: "hubstate-monitor", Profiles: devicestate.BuiltinNames(), PageAddr: "127.0.0.1:8480",
		Instance: host, SilentPercent: 50, MaxViewers: 200,
	}
}

// Validate returns all problems joined, each naming field, value and limit.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(c.KafkaBrokers) > 0, `kafka_brokers = []: is required`)
	for _, b := range c.KafkaBrokers {
		check(isHostPort(b), "kafka_brokers = %q: must be host:port", b)
	}
	check(c.KafkaTopic != "", `kafka_topic = "": is required`)
	check(c.Group != "", `group = "": is required`)
	check(hasScheme(c.RedisURL, "redis", "rediss", "unix"), "redis_url: must be a URL such as redis://127.0.0.1:6379/0")
	check(isHostPort(c.PageAddr), "page_addr = %q: must be host:port", c.PageAddr)
	check(c.PageToken != "" || isLoopback(c.PageAddr), "page_token: is required when page_addr (%q) is not a loopback address", c.PageAddr)
	check(c.PageToken == "" || len(c.PageToken) >= minToken, "page_token: has %d characters, must have at least %d", len(c.PageToken), minToken)
	check(c.SilentPercent >= 1 && c.SilentPercent <= 100, "silent_percent = %d: must be between 1 and 100", c.SilentPercent)
	check(c.MaxViewers >= 1 && c.MaxViewers <= 10000, "max_viewers = %d: must be between 1 and 10000", c.MaxViewers)
	check(len(c.Profiles) > 0, "profiles = []: is required")
	return errors.Join(errs...)
}

// minToken keeps a token from being guessed.
const minToken = 16

func isHostPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	return err == nil && port != ""
}

func hasScheme(url string, schemes ...string) bool {
	scheme, rest, ok := strings.Cut(url, "://")
	for _, s := range schemes {
		if ok && s == scheme && rest != "" {
			return true
		}
	}
	return false
}

// isLoopback reports whether addr can be reached from this machine only. A name other than localhost may resolve to
// anything, so it is not.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// LoadProfiles reads profiles by built-in name or file.
func LoadProfiles(names []string) ([]devicestate.Profile, error) {
	var errs []error
	profiles := make([]devicestate.Profile, 0, len(names))
	for _, name := range names {
		p, err := loadProfile(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		profiles = append(profiles, p)
	}
	return profiles, errors.Join(errs...)
}

func loadProfile(name string) (devicestate.Profile, error) {
	for _, p := range devicestate.Builtin() {
		if p.Name == name {
			return p, nil
		}
	}
	f, err := os.Open(name)
	if err != nil {
		return devicestate.Profile{}, fmt.Errorf("profiles = %q: is no built-in profile and cannot be read: %w", name, err)
	}
	defer f.Close()
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	var p devicestate.Profile
	if err := dec.Decode(&p); err != nil {
		return p, fmt.Errorf("profiles = %q: %w", name, err)
	}
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("profiles = %q: %w", name, err)
	}
	return p, nil
}
