package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hubstate/hubstate/loadtest/fleet"
	"github.com/hubstate/hubstate/loadtest/rig"
)

//go:embed scenarios/*.yaml
var shipped embed.FS

// Scenario is one run as it is written down: what the fleet sends, what runs, and what is broken when.
type Scenario struct {
	Name   string        `yaml:"-" json:"name"`
	About  string        `yaml:"about" json:"about"`
	Takes  string        `yaml:"takes" json:"takes"`               // how long it takes, for people
	WarmUp time.Duration `yaml:"warm_up" json:"warm_up,omitempty"` // latencies of reports due before it are not counted
	Settle time.Duration `yaml:"settle" json:"settle,omitempty"`   // how long the pipeline may take to come to rest; default 2m
	Load   fleet.Load    `yaml:"load" json:"load"`
	Parts  rig.Parts     `yaml:"parts" json:"parts"`
	Faults []rig.Fault   `yaml:"faults" json:"faults,omitempty"`
	Expect Expect        `yaml:"expect" json:"expect"`
	Matrix *Matrix       `yaml:"matrix" json:"matrix,omitempty"` // instead of faults: one run of the load for each cell
}

// Matrix is every fault on every component, one after the other, on one installation.
type Matrix struct {
	Components []string      `yaml:"components" json:"components"`
	Faults     []string      `yaml:"faults" json:"faults"`
	At         time.Duration `yaml:"at" json:"at"`             // after the start of each cell's load
	For        time.Duration `yaml:"for" json:"for"`           // how long the component is down or hangs
	Recovery   time.Duration `yaml:"recovery" json:"recovery"` // the longest that a cell may take to recover
}

// Expect names what a scenario provokes on purpose and the oracle must therefore not condemn.
type Expect struct {
	DeadLetters bool `yaml:"dead_letters" json:"dead_letters,omitempty"`
}

// loadScenario reads a shipped scenario by name, or a file by path.
func loadScenario(name string) (Scenario, error) {
	text, err := shipped.ReadFile("scenarios/" + name + ".yaml")
	if errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(name, "./") {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return Scenario{}, fmt.Errorf("scenario %q is unknown; there are: %s, or the path of a file", name, strings.Join(scenarioNames(), ", "))
	}
	s := Scenario{Name: strings.TrimSuffix(path.Base(name), ".yaml")}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&s); err != nil {
		return s, fmt.Errorf("scenario %s: %w", name, err)
	}
	return s.withDefaults(), s.validate()
}

func scenarioNames() []string {
	entries, _ := shipped.ReadDir("scenarios")
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

func (s Scenario) withDefaults() Scenario {
	if s.Settle == 0 {
		s.Settle = 2 * time.Minute
	}
	s.Load = s.Load.WithDefaults()
	s.Parts = s.Parts.WithDefaults()
	for i := range s.Faults {
		if s.Faults[i].For == 0 {
			s.Faults[i].For = 500 * time.Millisecond
		}
	}
	return s
}

func (s Scenario) validate() error {
	errs := []error{s.Load.Validate()}
	for _, f := range s.Faults {
		if onComponents(f) {
			errs = append(errs, f.Validate())
		}
		if slices.Contains(f.On, topicName) {
			errs = append(errs, validateTopicFault(f))
		}
	}
	if m := s.Matrix; m != nil {
		for _, f := range m.Faults {
			errs = append(errs, rig.Fault{Do: f, On: m.Components}.Validate())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	return nil
}

// fleetName is what a fault is on that concerns the devices' own connections.
const fleetName = "fleet"

// onComponents reports whether f concerns what runs, not the devices' connections or the topic's records.
func onComponents(f rig.Fault) bool {
	return !slices.Contains(f.On, fleetName) && !slices.Contains(f.On, topicName)
}

// brokerHurt reports whether a fault makes the broker forget what it had acknowledged.
func (s Scenario) brokerHurt() bool {
	return slices.ContainsFunc(s.Faults, rig.Fault.Hurts)
}
