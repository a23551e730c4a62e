package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/hubstate/hubstate/devicestate"
	"go.yaml.in/yaml/v3"
)

// LoadProfiles returns the profiles of names, in their order of precedence: built-in ones by name, others by YAML file.
// Unknown keys and values outside of their limits are errors, all joined.
func LoadProfiles(names []string) ([]devicestate.Profile, error) {
	var profiles []devicestate.Profile
	var errs []error
	for _, name := range names {
		p, err := loadProfile(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if slices.ContainsFunc(profiles, func(o devicestate.Profile) bool { return o.Name == p.Name }) {
			errs = append(errs, fmt.Errorf("profiles = %q: the name %q stands twice", name, p.Name))
		}
		profiles = append(profiles, p)
	}
	return profiles, errors.Join(errs...)
}

func loadProfile(name string) (devicestate.Profile, error) {
	if p, ok := builtinProfile(name); ok {
		return p, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return devicestate.Profile{}, fmt.Errorf("profiles = %q: is no built-in profile and cannot be read: %w", name, err)
	}
	p, err := ParseProfile(text)
	if err != nil {
		return p, fmt.Errorf("profiles = %q: %w", name, err)
	}
	return p, nil
}

func builtinProfile(name string) (devicestate.Profile, bool) {
	for _, p := range devicestate.Builtin() {
		if p.Name == name {
			return p, true
		}
	}
	return devicestate.Profile{}, false
}

// ParseProfile reads one profile from YAML, strictly.
func ParseProfile(text []byte) (devicestate.Profile, error) {
	var p devicestate.Profile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("read profile: %w", err)
	}
	return p, p.Validate()
}

// WriteProfile renders p as the YAML that ParseProfile reads.
func WriteProfile(p devicestate.Profile) ([]byte, error) {
	text, err := yaml.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("render profile %s: %w", p.Name, err)
	}
	return text, nil
}
