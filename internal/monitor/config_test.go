package monitor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate"
)

func TestConfig_NamesEveryProblemWithFieldValueAndLimit(t *testing.T) {
	t.Parallel()
	c := Config{KafkaBrokers: []string{"nowhere"}, RedisURL: "http://u:geheim@x", PageAddr: "0.0.0.0:80", PageToken: "short", SilentPercent: 101}
	err := c.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`kafka_brokers = "nowhere"`, "kafka_topic", "group", "redis_url", "page_token: has 5 characters, must have at least 16",
		"silent_percent = 101: must be between 1 and 100", "max_viewers = 0", "profiles"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "short\"") {
		t.Errorf("secret shown: %v", err)
	}
	c = DefaultConfig()
	c.KafkaBrokers, c.RedisURL = []string{"k:9092"}, "redis://r:6379"
	if err := c.Validate(); err != nil {
		t.Errorf("defaults refused: %v", err)
	}
}

func TestConfig_APageForOthersNeedsAToken(t *testing.T) {
	t.Parallel()
	for addr, ok := range map[string]bool{"127.0.0.1:1": true, "localhost:1": true, "[::1]:1": true, "127.9.9.9:1": true,
		":1": false, "0.0.0.0:1": false, "10.0.0.1:1": false, "hub.example:1": false} {
		c := DefaultConfig()
		c.KafkaBrokers, c.RedisURL, c.PageAddr = []string{"k:9092"}, "redis://r:6379", addr
		if err := c.Validate(); (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
		c.PageToken = pageToken
		if err := c.Validate(); err != nil {
			t.Errorf("%s with a token: %v", addr, err)
		}
	}
}

func TestLoadProfiles_TellsAllThatAreWrong(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: x\nstreems: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := LoadProfiles([]string{"hubstate", "nonsense", bad})
	if err == nil || !strings.Contains(err.Error(), `"nonsense"`) || !strings.Contains(err.Error(), "streems") {
		t.Errorf("%v", err)
	}
	for _, p := range devicestate.Builtin() {
		if _, err := LoadProfiles([]string{p.Name}); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func TestExpectations_ComeFromTheProfilesAndTheLongerOneWins(t *testing.T) {
	t.Parallel()
	one := devicestate.Profile{Streams: map[string]devicestate.StreamPolicy{
		"state": {Expect: 30 * time.Second}, "connection": {Kind: devicestate.KindConnection}, "hidden": {Emit: devicestate.EmitNone}}}
	two := devicestate.Profile{Streams: map[string]devicestate.StreamPolicy{"state": {Expect: time.Minute}, "*": {Expect: time.Hour}}}
	e, conflicts := NewExpectations([]devicestate.Profile{one, two})
	if !slices.Equal(conflicts, []string{"state"}) {
		t.Errorf("conflicts %v", conflicts)
	}
	for stream, want := range map[string]Expectation{
		"state": {Silent: time.Minute, MaxSkew: 2 * time.Minute}, "connection": {Connection: true, MaxSkew: 2 * time.Minute},
		"hidden": {Silent: time.Hour, MaxSkew: 2 * time.Minute}, "other": {Silent: time.Hour, MaxSkew: 2 * time.Minute}} {
		if got := e.Of(stream); got != want {
			t.Errorf("%s: %+v, want %+v", stream, got, want)
		}
	}
	none, _ := NewExpectations(nil)
	if none.Of("x").Silent != time.Minute {
		t.Errorf("default %v", none.Of("x"))
	}
}

// An installation that sets nothing has vehicles that tell their factsheet twice a day, and devices that report every five
// minutes: what ingest reads by default, the page must judge by default.
func TestExpectations_ByDefaultOfWhatIngestReadsByDefault(t *testing.T) {
	t.Parallel()
	profiles, err := LoadProfiles(DefaultConfig().Profiles)
	if err != nil {
		t.Fatal(err)
	}
	e, conflicts := NewExpectations(profiles)
	if len(conflicts) > 0 {
		t.Errorf("conflicts %v", conflicts)
	}
	for stream, want := range map[string]time.Duration{
		"state":  time.Minute, // vda5050 says 30s of it, but hubstate's devices have a minute for every stream
		"SENSOR": 10 * time.Minute, "factsheet": 24 * time.Hour, "connection": 0, "LWT": 0, "other": time.Minute} {
		if got := e.Of(stream); got.Silent != want {
			t.Errorf("%s: %v, want %v", stream, got.Silent, want)
		}
	}
	alone, err := LoadProfiles([]string{"vda5050"})
	if err != nil {
		t.Fatal(err)
	}
	e, _ = NewExpectations(alone)
	if got := e.Of("state").Silent; got != 30*time.Second {
		t.Errorf("vda5050 alone: %v", got)
	}
}
