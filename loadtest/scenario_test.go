package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/loadtest/rig"
)

func TestScenarios_ShippedOnesAreReadAndDescribed(t *testing.T) {
	t.Parallel()
	names := scenarioNames()
	for _, want := range []string{"smoke", "steady", "burst", "storm", "returning", "poison", "chaos", "soak"} {
		if !strings.Contains(strings.Join(names, " "), want) {
			t.Errorf("scenario %s is not shipped", want)
		}
	}
	for _, name := range names {
		s, err := loadScenario(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Name != name || s.About == "" || s.Takes == "" {
			t.Errorf("%s does not say what it shows and how long it takes", name)
		}
	}
}

// TestScenarios_SmokeIsLargeEnough holds the promise of the scenario that everybody runs first.
func TestScenarios_SmokeIsLargeEnough(t *testing.T) {
	t.Parallel()
	s, err := loadScenario("smoke")
	if err != nil {
		t.Fatal(err)
	}
	if reports := s.Load.Rate * s.Load.Duration.Seconds(); reports < 200_000 || s.Load.Devices < 5_000 {
		t.Errorf("%d devices send %.0f reports", s.Load.Devices, reports)
	}
}

func TestScenario_UnknownKeysAndNonsenseAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"unknown key": "load: {devices: 1, rate: 1, duration: 1s, colour: red}",
		"no devices":  "load: {rate: 1, duration: 1s}",
		"bad action":  "load: {devices: 1, rate: 1, duration: 1s}\nfaults: [{at: 1s, do: tickle, on: [relay]}]",
		"bad matrix":  "load: {devices: 1, rate: 1, duration: 1s}\nmatrix: {components: [relay], faults: [tickle]}",
		"bad shape":   "load: {devices: 1, rate: 1, duration: 1s, shape: zigzag}",
	} {
		path := filepath.Join(t.TempDir(), "s.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadScenario(path); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := loadScenario("nosuch"); err == nil || !strings.Contains(err.Error(), "smoke") {
		t.Errorf("an unknown scenario does not name the known ones: %v", err)
	}
}

func TestSettings_FlagsLieOverTheScenario(t *testing.T) {
	t.Parallel()
	s := defaultSettings()
	s.Rate, s.Devices, s.Duration, s.Kill, s.Every = 10, 20, 30*time.Second, []string{"ingest", "relay"}, 4*time.Second
	sc, err := s.scenario()
	if err != nil {
		t.Fatal(err)
	}
	if sc.Load.Rate != 10 || sc.Load.Devices != 20 || sc.Load.Duration != 30*time.Second {
		t.Errorf("load %+v", sc.Load)
	}
	if len(sc.Faults) != 1 || sc.Faults[0].Do != rig.DoKill || sc.Faults[0].Every != 4*time.Second || len(sc.Faults[0].On) != 2 {
		t.Errorf("faults %+v", sc.Faults)
	}
}

func TestSettings_APartOfAnInstallationIsAMistake(t *testing.T) {
	t.Parallel()
	s := defaultSettings()
	s.MQTTURL = "mqtt://broker:1883"
	if _, err := s.external(); err == nil {
		t.Error("accepted a broker without a database")
	}
	s.DatabaseURL, s.KafkaBrokers, s.RedisURL = "postgres://db/x", []string{"kafka:9092"}, "redis://redis"
	if external, err := s.external(); err != nil || !external {
		t.Errorf("refused a whole installation: %v", err)
	}
}
